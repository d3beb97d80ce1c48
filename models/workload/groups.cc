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
  }
  return "?";
}

int GroupSize(Group group, const Layout& layout) {
  switch (group) {
    case Group::kTensor: return layout.tensor_parallel;
    case Group::kShard: return layout.expert_sharding_parallel;
    case Group::kExpert: return layout.expert_parallel;
    case Group::kExpertShard: return layout.expert_parallel * layout.expert_sharding_parallel;
  }
  return 1;
}

GroupShape ShapeOf(Group group, const Layout& layout, int gpus_per_node) {
  const int size = GroupSize(group, layout);
  const int stride = group == Group::kExpert ? layout.expert_sharding_parallel : 1;
  return {size, std::max(1, std::min(size, gpus_per_node / stride))};
}

std::vector<int> MembersOf(Group group, const Layout& layout, int rank) {
  MOEPLAN_CHECK(rank >= 0);
  const int size = GroupSize(group, layout);
  const int shards = layout.expert_sharding_parallel;
  std::vector<int> members;
  if (group == Group::kExpert) {
    const int block = size * shards;
    for (int i = 0; i < size; ++i) members.push_back(rank / block * block + i * shards + rank % shards);
  } else {
    for (int i = 0; i < size; ++i) members.push_back(rank / size * size + i);
  }
  return members;
}

int IndexIn(Group group, const Layout& layout, int rank) {
  const std::vector<int> members = MembersOf(group, layout, rank);
  return static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
}

}  // namespace moeplan
