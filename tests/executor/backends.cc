#include "executor/sim/network.h"
#include "tests/executor/job_runner.h"

namespace moeplan::testing {

std::vector<Backend> Backends() {
  std::vector<Backend> backends = {
      {"threads", [](uint64_t) { return MakeThreadRunner(); }},
      {"gloo", [](uint64_t) { return MakeGlooRunner(); }},
      {"virtual", [](uint64_t seed) { return MakeVirtualRunner(ScatteredTimes(seed)); }},
  };
  if (Network::InThisBuild()) backends.push_back({"sim", [](uint64_t) { return MakeSimRunner(); }});
  return backends;
}

}  // namespace moeplan::testing
