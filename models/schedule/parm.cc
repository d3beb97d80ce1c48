#include <algorithm>

#include "models/routing/expert_load.h"
#include "models/routing/part_rows.h"
#include "models/schedule/expert_shard_route.h"
#include "models/schedule/families.h"

namespace moeplan {
namespace {

// S1: each MP rank gates its own slice of the tokens and sends what it dispatches.
//
// When capacity is passed exactly, sizes are known only after gating, so counts go ahead of the data (design.md §5); so
// they do where the layer is dropless, for rows alone to be sent. Otherwise each slice has a fixed share of the
// capacity, as Parm prints it: it drops other tokens than the baseline unless there is one slice.
class SliceRoute final : public ExpertShardRoute {
 public:
  SliceRoute(GraphBuilder& build, const Workload& workload, const Knobs& knobs)
      : ExpertShardRoute(build, knobs),
        slices_(workload.layout.tensor_parallel),
        exact_((slices_ > 1 || IsDropless(workload.layer)) && workload.capacity_passing == CapacityPassing::kExact),
        units_(build.UnitsOf(pieces_)),
        // Beyond f = 1 the capacity is room to spare, not rows to move.
        sent_rows_(std::min(1.0, 1 / CapacityFactorOf(workload.layer, workload.layout)) * build.sizes().capacity /
                   slices_ / units_),
        received_rows_(sent_rows_) {
    if (!exact_) return;
    // If nothing is dropped, an exchange and the experts behind it end when the rank has its rows that chance gives the
    // most, also under a router that hardly favours any expert.
    if (IsDropless(workload.layer)) received_rows_ *= PartRows(workload).BusiestRatio(1);
    if (IsEven(workload)) return;
    const SliceRows rows = BusiestSliceRows(workload);
    const double experts = workload.layer.experts;
    sent_rows_ = rows.sent / experts / units_;
    const double received = rows.received / (experts * workload.layout.expert_sharding_parallel) / units_;
    const double of_chance = IsDropless(workload.layer) ? (1 - DroppedShare(workload)) * received_rows_ : 0;
    received_rows_ = std::max(of_chance, received);
  }

  TokenShare token_share() const override { return TokenShare::kSlice; }
  int copies() const override { return 1; }

  GraphBuilder::Gated Gate(BufferId tokens) override {
    const int slots = build_.sizes().slots;
    if (!exact_) {
      build_.CutSlots((slots + slices_ - 1) / slices_, PieceAxis());
      GraphBuilder::Gated gated = build_.Gate(tokens);
      if (build_.balances()) gated.pair_counts = build_.GatherCounts(gated.pair_counts);
      return gated;
    }
    build_.CutSlots(slots, PieceAxis(), std::min(slots, build_.buffer(tokens).rows_per_cell));
    send_counts_ = build_.CountBuffer("send_counts", CountedCells(SentCells()));
    const GraphBuilder::Gated gated = build_.GateExactly(tokens, send_counts_);
    receive_counts_ = build_.AllToAll("counts_a2a", Group::kExpertShard, send_counts_,
                                      build_.CountBuffer("receive_counts", CountedCells(ReceivedCells())));
    return gated;
  }

  BufferId OwnSlots(const std::string& name) override { return Rows(name, SentCells(), send_counts_); }
  BufferId ExpertRows(const std::string& name) override { return ReceivedRows(name); }
  BufferId HomeSlots(const std::string& name) override {
    std::vector<Extent> cells = SentCells();
    cells.insert(cells.begin(), {Axis::kChunk, pieces_});
    return Rows(name, cells, send_counts_);
  }
  BufferId PieceOf(BufferId all) override {
    return pieces_ == 1 ? all : build_.ViewOfChunk(all, OwnSlots("home_piece"));
  }

 private:
  BufferId ReceivedRows(const std::string& name) override { return Rows(name, ReceivedCells(), receive_counts_); }
  BufferId ReturnedRows(const std::string& name) override { return Rows(name, ReceivedCells(), send_counts_); }

  std::vector<Extent> PieceAxis() const { return {{Axis::kChunk, pieces_}}; }

  // Of each peer, the counts of all pieces.
  std::vector<Extent> CountedCells(std::vector<Extent> cells) const {
    cells.insert(cells.end() - 1, {Axis::kChunk, pieces_});
    return cells;
  }

  BufferId Rows(const std::string& name, const std::vector<Extent>& cells, BufferId counts) {
    if (!exact_) return build_.SlotBuffer(name, cells);
    const double expected_rows = counts == send_counts_ ? sent_rows_ : received_rows_;
    return build_.IrregularSlotBuffer(name, cells, build_.slots_per_cell(), expected_rows, counts);
  }

  const int slices_;
  const bool exact_;
  const int units_;
  // Of a unit of a cell, on the rank that sends most and on the one that receives most.
  double sent_rows_, received_rows_;
  BufferId send_counts_ = kNoBuffer, receive_counts_ = kNoBuffer;
};

}  // namespace

// Parm §III, S1: pause MP before the gate, so that each MP rank works on its own slice of the tokens.
TaskGraph BuildParmS1(const Knobs& knobs, const Workload& workload, const Cluster& cluster) {
  GraphBuilder build(workload, cluster, ChunkUnitsOf(knobs));
  SliceRoute route(build, workload, knobs);
  return BuildLayer(build, route);
}

}  // namespace moeplan
