#include "models/schedule/all_to_all.h"

#include "models/text.h"

namespace moeplan {

Status AlgorithmAllowed(AllToAllAlgorithm algorithm, const GroupShape& group) {
  const bool two_levels = group.ranks_per_node > 1 && group.ranks_per_node < group.size;
  if (algorithm == AllToAllAlgorithm::kDirect || two_levels) return OkStatus();
  return Infeasible(StrCat("allToAll: ", Name(algorithm),
                           " needs a group over several nodes with several ranks on each, found ", group.size,
                           " ranks, ", group.ranks_per_node, " a node, where it is DIRECT"));
}

int ScratchBlocks(AllToAllAlgorithm algorithm, const GroupShape& group, int rank) {
  const int away = group.size - group.ranks_per_node;
  switch (algorithm) {
    case AllToAllAlgorithm::kDirect:
    case AllToAllAlgorithm::kPipe: return 0;
    case AllToAllAlgorithm::kHier1d: return rank % group.ranks_per_node == 0 ? 2 * away * group.ranks_per_node : 0;
    case AllToAllAlgorithm::kHier2d: return away;
  }
  return 0;
}

}  // namespace moeplan
