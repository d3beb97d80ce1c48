#include "executor/cuda/part_exchange.h"

#include <algorithm>

#include "models/check.h"

namespace moeplan::cuda {

std::vector<OwnParts> MatchOwnParts(std::span<const Part> sends, std::span<const Part> receives, int rank) {
  std::vector<OwnParts> matched;
  auto receive = receives.begin();
  for (const Part& send : sends) {
    if (send.peer != rank) continue;
    receive = std::find_if(receive, receives.end(), [&](const Part& part) { return part.peer == rank; });
    MOEPLAN_CHECK(receive != receives.end());
    matched.push_back({send, *receive++});
  }
  return matched;
}

}  // namespace moeplan::cuda
