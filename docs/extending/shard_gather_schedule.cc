// SHARD_GATHER: each slot goes to one rank of the node that has its expert, and the ranks that share the expert gather
// what each of them got. Where they share a node, slots cross between nodes once; with S1, S2 and PIPELINE, once for
// each shard. It is MONTA_O1 for any number of shards, cut into r pieces.
#include "examples.h"
#include "models/schedule/route.h"

namespace examples {
namespace {

using moeplan::Axis;
using moeplan::BufferId;
using moeplan::Group;

class ShardGather final : public moeplan::Route {
 public:
  ShardGather(moeplan::GraphBuilder& build, const moeplan::Knobs& knobs)
      : build_(build), layout_(build.layout()), knobs_(knobs) {}

  moeplan::TokenShare token_share() const override { return moeplan::TokenShare::kBatch; }
  int pieces() const override { return knobs_.partition_degree; }
  int copies() const override { return 1; }
  bool experts_wait() const override { return false; }

  moeplan::GraphBuilder::Gated Gate(BufferId tokens) override {
    build_.CutSlots(build_.sizes().slots, {{Axis::kTensor, layout_.tensor_parallel}, {Axis::kChunk, pieces()}});
    return build_.Gate(tokens);
  }

  BufferId OwnSlots(const std::string& name) override { return build_.SlotBuffer(name, Own()); }

  BufferId Send(BufferId own) override {
    const BufferId received = build_.AllToAll("dispatch_a2a", Group::kExpert, own, OwnSlots("received_slots"),
                                              knobs_.dispatch_codec, moeplan::Way::kThere);
    return build_.AllGather("gather_shards", Group::kShard, received, ExpertRows("gathered_slots"));
  }

  BufferId ExpertRows(const std::string& name) override {
    return build_.SlotBuffer(name, With({Axis::kShard, layout_.expert_sharding_parallel}));
  }

  std::vector<moeplan::ReturnStep> Return(moeplan::Pass) override {
    const auto make_room = [this](const std::string& name) { return OwnSlots(name); };
    std::vector<moeplan::ReturnStep> steps;
    if (layout_.expert_sharding_parallel > 1) {
      steps.push_back({0, make_room, [this](BufferId in, BufferId out) {
                         build_.ReduceScatter("sum_shards", Group::kShard, in, out);
                       }});
    }
    if (layout_.expert_parallel > 1) {
      steps.push_back({0, make_room, [this](BufferId in, BufferId out) {
                         build_.AllToAll("combine_a2a", Group::kExpert, in, out, knobs_.combine_codec,
                                         moeplan::Way::kBack);
                       }});
    }
    if (layout_.tensor_parallel > 1) {
      steps.push_back({1, make_room, [this](BufferId in, BufferId out) {
                         build_.AllGather("gather_slots", Group::kTensor, in, out);
                       }});
    }
    return steps;
  }

  BufferId HomeSlots(const std::string& name) override {
    std::vector<moeplan::Extent> cells = Home();
    cells.insert(cells.begin(), {Axis::kChunk, pieces()});
    return build_.SlotBuffer(name, cells);
  }
  BufferId PieceOf(BufferId all) override {
    return pieces() == 1 ? all : build_.ViewOfChunk(all, build_.SlotBuffer("home_piece", Home()));
  }

 private:
  // The own share of a piece of the slots of every expert.
  std::vector<moeplan::Extent> Own() const {
    return {{Axis::kExpertRank, layout_.expert_parallel}, {Axis::kExpert, build_.local_experts()}};
  }
  std::vector<moeplan::Extent> With(moeplan::Extent outermost) const {
    std::vector<moeplan::Extent> cells = Own();
    cells.insert(cells.begin(), outermost);
    return cells;
  }
  std::vector<moeplan::Extent> Home() const { return With({Axis::kTensor, layout_.tensor_parallel}); }

  moeplan::GraphBuilder& build_;
  const moeplan::Layout layout_;
  const moeplan::Knobs knobs_;
};

moeplan::TaskGraph Build(const moeplan::Knobs& knobs, const moeplan::Workload& workload,
                         const moeplan::Cluster& cluster) {
  moeplan::GraphBuilder build(workload, cluster);
  ShardGather route(build, knobs);
  return BuildLayer(build, route);
}

// With one shard there is nothing to gather: it is PARM_S2.
moeplan::Status Allowed(const moeplan::Workload& workload) {
  if (workload.layout.expert_sharding_parallel > 1) return moeplan::OkStatus();
  return moeplan::Infeasible("needs expertShardingParallel above 1");
}

}  // namespace

moeplan::Status AddShardGather() {
  return moeplan::RegisterSchedule({.name = "SHARD_GATHER",
                                    .build = Build,
                                    .allowed = Allowed,
                                    .exchange_group = Group::kExpert,
                                    .pieces = &moeplan::Knobs::partition_degree})
      .status();
}

}  // namespace examples
