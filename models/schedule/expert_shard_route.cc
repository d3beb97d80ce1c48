#include "models/schedule/expert_shard_route.h"

namespace moeplan {

std::vector<Extent> ExpertShardRoute::SentCells() const {
  return {{Axis::kExpertRank, build_.layout().expert_parallel}, {Axis::kExpert, build_.local_experts()}};
}

std::vector<Extent> ExpertShardRoute::ReceivedCells() const {
  return {{Axis::kExpertRank, build_.layout().expert_parallel},
          {Axis::kShard, build_.layout().expert_sharding_parallel},
          {Axis::kExpert, build_.local_experts()}};
}

BufferId ExpertShardRoute::Send(BufferId own) {
  return build_.AllToAll("dispatch_a2a", Group::kExpertShard, own, ReceivedRows("received_slots"), dispatch_codec_,
                         Way::kThere);
}

std::vector<ReturnStep> ExpertShardRoute::Return(Pass) {
  std::vector<ReturnStep> steps;
  if (GroupSize(Group::kExpertShard, build_.layout()) > 1) {
    steps.push_back({0, [this](const std::string& name) { return ReturnedRows(name); },
                     [this](BufferId in, BufferId out) {
                       build_.AllToAll("combine_a2a", Group::kExpertShard, in, out, combine_codec_, Way::kBack);
                     }});
  }
  if (build_.layout().expert_sharding_parallel > 1) {
    steps.push_back({1, [this](const std::string& name) { return OwnSlots(name); },
                     [this](BufferId in, BufferId out) { build_.SumShards(in, out); }});
  }
  return steps;
}

}  // namespace moeplan
