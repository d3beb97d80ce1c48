#include "tests/executor/job_runner.h"

namespace moeplan::testing {

std::vector<Backend> Backends() {
  return {
      {"threads", [](uint64_t) { return MakeThreadRunner(); }},
      {"gloo", [](uint64_t) { return MakeGlooRunner(); }},
      {"virtual", [](uint64_t seed) { return MakeVirtualRunner(ScatteredTimes(seed)); }},
  };
}

}  // namespace moeplan::testing
