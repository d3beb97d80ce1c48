#include "models/schedule/expert_shard_route.h"
#include "models/schedule/families.h"

namespace moeplan {
namespace {

// Every expert's slots are cut over `senders` MP ranks (1: each sends them all) and into pieces; while the slots of one
// piece are computed, others are on their way.
class SlotRoute final : public ExpertShardRoute {
 public:
  SlotRoute(GraphBuilder& build, const Knobs& knobs, int senders)
      : ExpertShardRoute(build, knobs), senders_(senders), overlapped_gather_(knobs.overlapped_gather) {}

  TokenShare token_share() const override { return TokenShare::kBatch; }
  int copies() const override { return build_.layout().tensor_parallel / senders_; }

  GraphBuilder::Gated Gate(BufferId tokens) override {
    build_.CutSlots(build_.sizes().slots, {{Axis::kTensor, senders_}, {Axis::kChunk, pieces_}});
    return build_.Gate(tokens);
  }

  BufferId OwnSlots(const std::string& name) override { return build_.SlotBuffer(name, SentCells()); }
  BufferId ExpertRows(const std::string& name) override { return ReceivedRows(name); }
  BufferId HomeSlots(const std::string& name) override {
    std::vector<Extent> cells = HomeCells();
    cells.insert(cells.begin(), {Axis::kChunk, pieces_});
    return build_.SlotBuffer(name, cells);
  }
  BufferId PieceOf(BufferId all) override {
    return pieces_ == 1 ? all : build_.ViewOfChunk(all, build_.SlotBuffer("home_piece", HomeCells()));
  }

  std::vector<ReturnStep> Return(Pass pass) override {
    const auto unused = [](const std::string&) { return kNoBuffer; };
    if (overlapped_gather_) {
      return {{0, unused, [this](BufferId in, BufferId out) {
                 build_.AllToAllAllGather("combine_saa", in, ReturnedRows("returned_slots"), out);
               }}};
    }
    std::vector<ReturnStep> steps = ExpertShardRoute::Return(pass);
    if (senders_ > 1) {
      steps.push_back({1, unused, [this](BufferId in, BufferId out) {
                         build_.AllGather("gather_slots", Group::kTensor, in, out);
                       }});
    }
    return steps;
  }

 private:
  BufferId ReceivedRows(const std::string& name) override { return build_.SlotBuffer(name, ReceivedCells()); }
  BufferId ReturnedRows(const std::string& name) override { return build_.SlotBuffer(name, ReceivedCells()); }

  std::vector<Extent> HomeCells() const {
    std::vector<Extent> cells = SentCells();
    cells.insert(cells.begin(), {Axis::kTensor, senders_});
    return cells;
  }

  const int senders_;
  const bool overlapped_gather_;
};

TaskGraph Build(const Knobs& knobs, const Workload& workload, const Cluster& cluster, int senders) {
  GraphBuilder build(workload, cluster, ChunkUnitsOf(knobs));
  SlotRoute route(build, knobs, senders);
  return BuildLayer(build, route);
}

}  // namespace

// Parm §III, S2: pause MP after the gate, so that each MP rank works on its own share of every expert's slots.
TaskGraph BuildParmS2(const Knobs& knobs, const Workload& workload, const Cluster& cluster) {
  return Build(knobs, workload, cluster, workload.layout.tensor_parallel);
}

// ScheMoE §4, PipeMoE, Tutel: no MP rank pauses. Launched in the order of OptSche.
TaskGraph BuildPipeline(const Knobs& knobs, const Workload& workload, const Cluster& cluster) {
  return Build(knobs, workload, cluster, /*senders=*/1);
}

}  // namespace moeplan
