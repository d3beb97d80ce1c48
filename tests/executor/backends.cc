#include "tests/executor/job_runner.h"
#ifdef MOEPLAN_TEST_SIM
#include "tests/executor/sim_runner.h"
#endif

namespace moeplan::testing {

std::vector<Backend> Backends() {
  std::vector<Backend> backends = {
      {"threads", [](uint64_t) { return MakeThreadRunner(); }},
      {"gloo", [](uint64_t) { return MakeGlooRunner(); }},
      {"virtual", [](uint64_t seed) { return MakeVirtualRunner(ScatteredTimes(seed)); }},
  };
#ifdef MOEPLAN_TEST_SIM
  backends.push_back({"sim", [](uint64_t) { return MakeSimRunner(); }});
#endif
  return backends;
}

}  // namespace moeplan::testing
