#include "executor/cuda/cell_groups.h"

namespace moeplan::executor::cuda {

std::vector<int32_t> FirstPairsOf(std::span<const CellPair> pairs) {
  std::vector<int32_t> first;
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (i == 0 || pairs[i].to != pairs[i - 1].to) first.push_back(static_cast<int32_t>(i));
  }
  first.push_back(static_cast<int32_t>(pairs.size()));
  return first;
}

}  // namespace moeplan::executor::cuda
