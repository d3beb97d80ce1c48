// Who talks to whom: the groups of design.md §3 over the ranks of one pipeline stage.
//
// Ranks are numbered within a stage. The MoE layer lays them out as [ESP, EP, replicas], first fastest; tensor-parallel
// groups are consecutive ranks. Pure functions of a resolved layout.
#pragma once

#include <string_view>
#include <vector>

#include "models/workload/workload.h"

namespace moeplan {

enum class Group {
  kTensor,       // MP: N_MP consecutive ranks.
  kShard,        // ESP: N_ESP consecutive ranks.
  kExpert,       // EP: N_EP ranks, N_ESP apart.
  kExpertShard,  // EP&ESP: N_EP·N_ESP consecutive ranks.
  // CP&DP: the CP·DP ranks of equal place in their MP group. They hold the same dense weights, so dense gradients are
  // summed over them; the MoE layer itself has no use for them.
  kDenseReplicas,
};
// Those that the layer's schedules may talk over.
inline constexpr Group kGroups[] = {Group::kTensor, Group::kShard, Group::kExpert, Group::kExpertShard};
inline constexpr int kGroupCount = 5;

// A part of a group that lies on several nodes, as one of its ranks sees it.
enum class Team {
  kNode,   // Those of the own node.
  kPlace,  // Those of the own place, one on each node.
  kGroup,  // All.
};

// What cost models know of a group.
struct GroupShape {
  int size = 1;
  int ranks_per_node = 1;

  friend auto operator<=>(const GroupShape&, const GroupShape&) = default;
};

// "MP", "ESP", "EP", "EP&ESP" or "CP&DP", as messages and explanations call it.
std::string_view Name(Group group);

// kDenseReplicas asks for a layout with data_parallel filled in.
int GroupSize(Group group, const Layout& layout);
GroupShape ShapeOf(Group group, const Layout& layout, int gpus_per_node);
GroupShape ShapeOf(Team team, const GroupShape& group);

// The ranks of `rank`'s group in rank order, and the place of `rank` among them.
std::vector<int> MembersOf(Group group, const Layout& layout, int rank);
int IndexIn(Group group, const Layout& layout, int rank);

// Whether two groups are the same ranks, as EP and EP&ESP are without expert sharding.
bool SameMembers(Group a, Group b, const Layout& layout);

}  // namespace moeplan
