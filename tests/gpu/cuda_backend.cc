// The backends that tests of every backend run on in a program for a card.
#include "tests/gpu/cuda_runner.h"

namespace moeplan::testing {

std::vector<Backend> Backends() {
  return {{"cuda", [](uint64_t) { return MakeSharedCardRunner(); }, /*stops_at_once=*/false},
          {"staged", [](uint64_t) { return MakeStagedRunner(/*meets=*/true); }, /*stops_at_once=*/false}};
}

}  // namespace moeplan::testing
