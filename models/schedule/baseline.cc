#include "models/schedule/families.h"
#include "models/schedule/route.h"

namespace moeplan {
namespace {

// Every rank of an ESP group computes its shard of the experts on `blocks` source batches: those of the group, or the
// one that its ranks share.
class ShardedRoute final : public Route {
 public:
  ShardedRoute(GraphBuilder& build, TokenShare token_share)
      : build_(build),
        token_share_(token_share),
        blocks_(token_share == TokenShare::kBatches ? build.layout().expert_sharding_parallel : 1) {}

  TokenShare token_share() const override { return token_share_; }
  int pieces() const override { return 1; }
  int copies() const override { return token_share_ == TokenShare::kBatches ? build_.layout().tensor_parallel : 1; }
  bool experts_wait() const override { return false; }
  GraphBuilder::Gated Gate(BufferId tokens) override { return build_.Gate(tokens); }

  BufferId OwnSlots(const std::string& name) override { return Slots(name); }
  BufferId Send(BufferId own) override {
    return build_.AllToAll("dispatch_a2a", Group::kExpert, own, Slots("received_slots"));
  }
  std::vector<ReturnStep> Return(Pass pass) override {
    const auto make_room = [this](const std::string& name) { return Slots(name); };
    std::vector<ReturnStep> steps;
    // The gathered batches' gradients are summed over the group when they go back to their owners.
    const bool sums = pass == Pass::kForward || token_share_ == TokenShare::kBatch;
    if (sums && build_.layout().expert_sharding_parallel > 1) {
      steps.push_back({0, make_room, [this](BufferId in, BufferId out) {
                         build_.AllReduce("reduce_shards", Group::kShard, in, out);
                       }});
    }
    if (build_.layout().expert_parallel > 1) {
      steps.push_back({0, make_room,
                       [this](BufferId in, BufferId out) { build_.AllToAll("combine_a2a", Group::kExpert, in, out); }});
    }
    return steps;
  }
  BufferId PieceOf(BufferId all) override { return all; }
  BufferId ExpertRows(const std::string& name) override { return Slots(name); }
  BufferId HomeSlots(const std::string& name) override { return Slots(name); }

 private:
  BufferId Slots(const std::string& name) {
    return build_.SlotBuffer(name, {{Axis::kExpertRank, build_.layout().expert_parallel},
                                    {Axis::kBlock, blocks_},
                                    {Axis::kExpert, build_.local_experts()}});
  }

  GraphBuilder& build_;
  const TokenShare token_share_;
  const int blocks_;
};

TaskGraph Build(const Workload& workload, const Cluster& cluster, TokenShare token_share) {
  GraphBuilder build(workload, cluster);
  ShardedRoute route(build, token_share);
  return BuildLayer(build, route);
}

}  // namespace

// Parm §II: gather the source batches of the ESP group and let every rank of it compute them all. Where ESP and MP
// overlap the gathered batches are copies of each other; that is the waste Parm removes.
TaskGraph BuildBaseline(const Knobs&, const Workload& workload, const Cluster& cluster) {
  return Build(workload, cluster, TokenShare::kBatches);
}

// MoNTA's baseline: ESP = MP, so every rank of the ESP group has the tokens already.
TaskGraph BuildBaselineTp(const Knobs&, const Workload& workload, const Cluster& cluster) {
  return Build(workload, cluster, TokenShare::kBatch);
}

}  // namespace moeplan
