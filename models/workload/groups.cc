#include "models/workload/groups.h"

#include <algorithm>

#include "models/check.h"

namespace moeplan {

std::string_view Name(Group group) {
  switch (group) {
    case Group::kTensor: return "MP";
    case Group::kShard: return "ESP";
    case Group::kExpert: return "EP";
    case Group::kExpertShard: return "EP&ESP";
    case Group::kDenseReplicas: return "CP&DP";
  }
  return "?";
}

int GroupSize(Group group, const Layout& layout) {
  switch (group) {
    case Group::kTensor: return layout.tensor_parallel;
    case Group::kShard: return layout.expert_sharding_parallel;
    case Group::kExpert: return layout.expert_parallel;
    case Group::kExpertShard: return layout.expert_parallel * layout.expert_sharding_parallel;
    case Group::kDenseReplicas: return layout.context_parallel * layout.data_parallel;
  }
  return 1;
}

namespace {

// From a member of the group to the next.
int StrideOf(Group group, const Layout& layout) {
  switch (group) {
    case Group::kExpert: return layout.expert_sharding_parallel;
    case Group::kDenseReplicas: return layout.tensor_parallel;
    default: return 1;
  }
}

}  // namespace

GroupShape ShapeOf(Group group, const Layout& layout, int gpus_per_node) {
  const int size = GroupSize(group, layout);
  return {size, std::max(1, std::min(size, gpus_per_node / StrideOf(group, layout)))};
}

GroupShape ShapeOf(Team team, const GroupShape& group) {
  switch (team) {
    case Team::kNode: return {group.ranks_per_node, group.ranks_per_node};
    case Team::kPlace: return {group.size / group.ranks_per_node, 1};
    case Team::kGroup: break;
  }
  return group;
}

std::vector<int> MembersOf(Group group, const Layout& layout, int rank) {
  MOEPLAN_CHECK(rank >= 0);
  const int size = GroupSize(group, layout), stride = StrideOf(group, layout), block = size * stride;
  std::vector<int> members;
  for (int i = 0; i < size; ++i) members.push_back(rank / block * block + i * stride + rank % stride);
  return members;
}

bool SameMembers(Group a, Group b, const Layout& layout) {
  const int size = GroupSize(a, layout);
  return size == GroupSize(b, layout) && (size == 1 || StrideOf(a, layout) == StrideOf(b, layout));
}

int IndexIn(Group group, const Layout& layout, int rank) {
  const int stride = StrideOf(group, layout);
  return rank % (GroupSize(group, layout) * stride) / stride;
}

}  // namespace moeplan
