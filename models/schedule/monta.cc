#include "models/schedule/families.h"
#include "models/schedule/route.h"

namespace moeplan {
namespace {

// MoNTA §4 (ESP = MP): each MP rank sends its share of every expert's slots between nodes, and the shares are gathered
// inside the node. O2 and O3 cut both into chunks so that they overlap; the way back is cut likewise.
class MontaRoute final : public Route {
 public:
  MontaRoute(GraphBuilder& build, const Knobs& knobs)
      : build_(build),
        layout_(build.layout()),
        chunks_(knobs.chunks),
        dispatch_codec_(knobs.dispatch_codec),
        combine_codec_(knobs.combine_codec),
        copies_into_place_(knobs.family != Family::kMontaO1),
        copy_stream_(knobs.family == Family::kMontaO3 ? StreamKind::kCopy : build.StreamOf(Group::kTensor)) {}

  TokenShare token_share() const override { return TokenShare::kBatch; }
  int pieces() const override { return chunks_; }
  int copies() const override { return 1; }
  bool experts_wait() const override { return true; }

  GraphBuilder::Gated Gate(BufferId tokens) override {
    build_.CutSlots(build_.sizes().slots, {{Axis::kTensor, layout_.tensor_parallel}, {Axis::kChunk, chunks_}});
    return build_.Gate(tokens);
  }

  BufferId OwnSlots(const std::string& name) override { return build_.SlotBuffer(name, SentCells()); }

  BufferId Send(BufferId own) override {
    const BufferId received =
        build_.AllToAll("dispatch_a2a", Group::kExpert, own, OwnSlots("received_slots"), dispatch_codec_, Way::kThere);
    const BufferId gathered = build_.AllGather("gather_slots", Group::kTensor, received,
                                               build_.SlotBuffer("gathered_slots", GatheredCells()));
    if (!copies_into_place_) return gathered;
    if (build_.chunk() == 0) placed_ = build_.SlotBuffer("placed_slots", PlacedCells());
    build_.Copy("place", copy_stream_, gathered, placed_);
    return placed_;
  }

  std::vector<ReturnStep> Return(Pass) override {
    const auto make_room = [this](const std::string& name) { return OwnSlots(name); };
    std::vector<ReturnStep> steps;
    if (layout_.tensor_parallel > 1) {
      steps.push_back({0, make_room, [this](BufferId in, BufferId out) {
                         build_.ReduceScatter("reduce_shards", Group::kTensor, in, out);
                       }});
    }
    if (layout_.expert_parallel > 1) {
      steps.push_back({1, make_room, [this](BufferId in, BufferId out) {
                         build_.AllToAll("combine_a2a", Group::kExpert, in, out, combine_codec_, Way::kBack);
                       }});
    }
    if (layout_.tensor_parallel > 1) {
      steps.push_back({1, make_room, [this](BufferId in, BufferId out) {
                         build_.AllGather("gather_back", Group::kTensor, in, out);
                       }});
    }
    return steps;
  }

  BufferId PieceOf(BufferId all) override {
    return chunks_ == 1 ? all : build_.ViewOfChunk(all, build_.SlotBuffer("home_piece", GatheredCells()));
  }

  BufferId ExpertRows(const std::string& name) override { return HomeSlots(name); }
  BufferId HomeSlots(const std::string& name) override {
    std::vector<Extent> cells = GatheredCells();
    cells.insert(cells.begin(), {Axis::kChunk, chunks_});
    return build_.SlotBuffer(name, cells);
  }

 private:
  // The own share of one chunk.
  std::vector<Extent> SentCells() const {
    return {{Axis::kExpertRank, layout_.expert_parallel}, {Axis::kExpert, build_.local_experts()}};
  }
  // One chunk of the whole MP group.
  std::vector<Extent> GatheredCells() const {
    return {{Axis::kTensor, layout_.tensor_parallel},
            {Axis::kExpertRank, layout_.expert_parallel},
            {Axis::kExpert, build_.local_experts()}};
  }
  // All chunks, the rows of an expert side by side.
  std::vector<Extent> PlacedCells() const {
    return {{Axis::kExpert, build_.local_experts()},
            {Axis::kExpertRank, layout_.expert_parallel},
            {Axis::kTensor, layout_.tensor_parallel},
            {Axis::kChunk, chunks_}};
  }

  GraphBuilder& build_;
  const Layout layout_;
  const int chunks_;
  const Codec dispatch_codec_, combine_codec_;
  const bool copies_into_place_;
  const StreamKind copy_stream_;
  BufferId placed_ = kNoBuffer;
};

}  // namespace

TaskGraph BuildMonta(const Knobs& knobs, const Workload& workload, const Cluster& cluster) {
  GraphBuilder build(workload, cluster, ChunkUnitsOf(knobs));
  MontaRoute route(build, knobs);
  return BuildLayer(build, route);
}

}  // namespace moeplan
