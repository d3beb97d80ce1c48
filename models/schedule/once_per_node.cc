#include <algorithm>

#include "models/routing/node_rows.h"
#include "models/schedule/families.h"
#include "models/schedule/route.h"

namespace moeplan {
namespace {

constexpr Among kAcross{Group::kExpertShard, Team::kPlace};
constexpr Among kInside{Group::kExpertShard, Team::kNode};

// Each MP rank gates its own slice of the tokens, as in S1. A token that has pairs on a node goes there once, to the
// rank of the own place, which relays: it passes the pairs on to their experts on the node, and sums up what comes back
// before one row goes home. So the relay is to its node what a rank is to its group in S1, with tokens and routing that
// came from the ranks of its place.
class NodeRoute final : public Route {
 public:
  NodeRoute(GraphBuilder& build, const Workload& workload, const Knobs& knobs)
      : build_(build),
        dispatch_codec_(knobs.dispatch_codec),
        combine_codec_(knobs.combine_codec),
        slices_(workload.layout.tensor_parallel),
        shards_(workload.layout.expert_sharding_parallel),
        ranks_(build.ShapeOf(kInside).size / shards_),
        rows_(BusiestNodeRows(workload, build.nodes())) {}

  TokenShare token_share() const override { return TokenShare::kSlice; }
  int pieces() const override { return 1; }
  int copies() const override { return 1; }
  bool experts_wait() const override { return false; }

  GraphBuilder::Gated Gate(BufferId tokens) override {
    slice_tokens_ = build_.buffer(tokens).rows_per_cell;
    build_.CutSlots(build_.sizes().slots, {}, std::min(build_.sizes().slots, slice_tokens_));
    const auto send_counts = [this] {
      return build_.CountBuffer("send_counts", {{Axis::kExpertRank, build_.layout().expert_parallel},
                                                {Axis::kExpert, build_.local_experts()}});
    };
    GraphBuilder::Gated gated = slices_ == 1 ? build_.Gate(tokens) : build_.GateExactly(tokens, send_counts());
    const GraphBuilder::SentByNode sent = build_.SplitByNode(tokens, gated.routing);
    relay_ = build_.RelayRouting(gated.routing);
    node_routing_ = gated.sent_routing = sent.routing;
    node_counts_ = sent.counts;
    receive_counts_ =
        build_.AllToAll("counts_a2a", kInside, relay_.pair_counts, build_.CountBuffer("receive_counts", ExpertCells()));
    return gated;
  }

  BufferId OwnSlots(const std::string& name) override {
    return build_.NodeRows(name, slice_tokens_, rows_.sent / build_.nodes(), build_.row_bytes(), node_counts_);
  }
  BufferId HomeSlots(const std::string& name) override { return OwnSlots(name); }
  BufferId PieceOf(BufferId all) override { return all; }
  BufferId ExpertRows(const std::string& name) override {
    const double cells = build_.layer().experts / build_.nodes() * shards_;
    return Pairs(name, ExpertCells(), rows_.arriving / cells, receive_counts_);
  }

  BufferId Send(BufferId own) override {
    return build_.AllToAll("dispatch_a2a", kAcross, own, RelayRows("relay_rows"), dispatch_codec_, Way::kThere);
  }
  BufferId Arrive(BufferId rows) override {
    const BufferId pairs = RelayPairs("relay_slots");
    if (build_.is_backward()) {
      relay_gradient_ = rows;
      build_.CombineGradient(rows, relay_.routing, pairs, "relay_combine");
    } else {
      build_.Dispatch(rows, relay_.routing, pairs, "relay_dispatch");
    }
    return build_.AllToAll("spread_a2a", kInside, pairs, ExpertRows("received_slots"));
  }

  // Every step is of round 0, so that rows are on their way home while weight gradients are computed.
  std::vector<ReturnStep> Return(Pass pass) override {
    std::vector<ReturnStep> steps;
    if (build_.ShapeOf(kInside).size > 1) {
      steps.push_back({0, [this](const std::string& name) { return ReturnedPairs(name); },
                       [this](BufferId in, BufferId out) { build_.AllToAll("collect_a2a", kInside, in, out); }});
    }
    if (shards_ > 1) {
      steps.push_back({0, [this](const std::string& name) { return RelayPairs(name); },
                       [this](BufferId in, BufferId out) { build_.SumShards(in, out); }});
    }
    steps.push_back({0, [this](const std::string& name) { return RelayRows(name); },
                     [this, pass](BufferId in, BufferId out) { SumUp(pass, in, out); }});
    steps.push_back({0, [](const std::string&) { return kNoBuffer; },
                     [this](BufferId in, BufferId out) {
                       build_.AllToAll("combine_a2a", kAcross, in, out, combine_codec_, Way::kBack);
                     }});
    return steps;
  }

  // The relay has what the pairs gave, and tells the token's rank.
  BufferId RoutingGradient(GraphBuilder& build, BufferId own_gradient, BufferId, const GraphBuilder::Gated&) override {
    const BufferId relayed = build.RoutingGradient(relay_gradient_, relay_pairs_, relay_.routing, "relay_routing");
    const BufferId home = build.NodeRows("home_routing_gradient", slice_tokens_, rows_.sent / build.nodes(),
                                         build.buffer(relayed).row_bytes, node_counts_);
    build.AllToAll("routing_a2a", kAcross, relayed, home);
    return build.SumOverNodes(home, node_routing_, build.buffer(own_gradient).rows_per_cell);
  }

 private:
  // A relay's rows for the way home.
  void SumUp(Pass pass, BufferId pairs, BufferId rows) {
    if (pass == Pass::kBackward) return build_.DispatchGradient(pairs, relay_.routing, rows, "relay_dispatch");
    relay_pairs_ = pairs;
    build_.CombineRelayed(pairs, relay_.routing, rows);
  }

  // Cells of the pairs that a rank gets from the relays of its node, and of those that it passes on itself.
  std::vector<Extent> ExpertCells() const {
    return {{Axis::kExpertRank, ranks_}, {Axis::kShard, shards_}, {Axis::kExpert, build_.local_experts()}};
  }
  std::vector<Extent> RelayCells() const {
    return {{Axis::kExpertRank, ranks_}, {Axis::kExpert, build_.local_experts()}};
  }

  BufferId RelayRows(const std::string& name) {
    return build_.NodeRows(name, slice_tokens_, rows_.received / build_.nodes(), build_.row_bytes(), relay_.row_counts);
  }
  BufferId RelayPairs(const std::string& name) { return Pairs(name, RelayCells(), passed_on(), relay_.pair_counts); }
  BufferId ReturnedPairs(const std::string& name) {
    return Pairs(name, ExpertCells(), passed_on(), relay_.pair_counts);
  }
  double passed_on() const { return rows_.passed_on * build_.nodes() / build_.layer().experts; }

  // An expert may have as many as all ranks of a place may keep.
  BufferId Pairs(const std::string& name, const std::vector<Extent>& cells, double expected_rows, BufferId counts) {
    return build_.IrregularSlotBuffer(name, cells, build_.nodes() * build_.slots_per_cell(), expected_rows, counts);
  }

  GraphBuilder& build_;
  const Codec dispatch_codec_, combine_codec_;
  const int slices_, shards_;
  const int ranks_;  // The ranks of a node that hold different experts.
  const NodeRows rows_;
  int slice_tokens_ = 0;
  GraphBuilder::Relay relay_;
  BufferId node_routing_ = kNoBuffer, node_counts_ = kNoBuffer, receive_counts_ = kNoBuffer;
  BufferId relay_pairs_ = kNoBuffer, relay_gradient_ = kNoBuffer;
};

}  // namespace

// The way of DeepEP (deepseek-ai, 2025) between nodes, over whatever all-to-all there is: a token whose k experts lie
// on n nodes is k/n times fewer rows to them than where each pair travels on its own.
TaskGraph BuildOncePerNode(const Knobs& knobs, const Workload& workload, const Cluster& cluster) {
  GraphBuilder build(workload, cluster);
  NodeRoute route(build, workload, knobs);
  return BuildLayer(build, route);
}

}  // namespace moeplan
