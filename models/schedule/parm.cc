#include <algorithm>

#include "models/schedule/families.h"

namespace moeplan {
namespace {

struct ParmCells {
  explicit ParmCells(const GraphBuilder& build, const Layout& layout)
      : sent{{Axis::kExpertRank, layout.expert_parallel}, {Axis::kExpert, build.local_experts()}},
        received{{Axis::kExpertRank, layout.expert_parallel},
                 {Axis::kShard, layout.expert_sharding_parallel},
                 {Axis::kExpert, build.local_experts()}},
        gathered{{Axis::kTensor, layout.tensor_parallel},
                 {Axis::kExpertRank, layout.expert_parallel},
                 {Axis::kExpert, build.local_experts()}} {}

  std::vector<Extent> sent;      // Own slots by expert.
  std::vector<Extent> received;  // By rank of the EP&ESP group.
  std::vector<Extent> gathered;  // By rank of the MP group.
};

// A slice of ceil(B·L / N_MP) tokens for each MP rank.
int SliceTokens(const GraphBuilder& build, const Layout& layout) {
  return (build.tokens() + layout.tensor_parallel - 1) / layout.tensor_parallel;
}

// The slots of a slice when capacity is passed exactly: sizes are known only after gating, so counts go ahead of the
// data in every exchange (design.md §5).
struct ExactSlice {
  BufferId routing, sent, received, computed, returned, summed;

  ExactSlice(GraphBuilder& build, const Workload& workload, BufferId slice) {
    const ParmCells cells(build, workload.layout);
    const int slots = build.sizes().slots;
    const int rows = std::min(slots, SliceTokens(build, workload.layout));
    // Beyond f = 1 the capacity is room to spare, not rows to move.
    const double expected =
        std::min(1.0, 1 / workload.layer.capacity_factor) * build.sizes().capacity / workload.layout.tensor_parallel;
    build.CutSlots(slots, {});
    const BufferId counts = build.CountBuffer("slice_counts", cells.sent);
    routing = build.Gate(slice, counts);
    const BufferId all_counts =
        build.AllGather("gather_counts", Group::kTensor, counts, build.CountBuffer("all_counts", cells.gathered));
    const BufferId send_counts = build.CountBuffer("send_counts", cells.sent);
    build.AssignSlots(all_counts, routing, send_counts);
    const BufferId receive_counts = build.AllToAll("counts_a2a", Group::kExpertShard, send_counts,
                                                   build.CountBuffer("receive_counts", cells.received));
    const auto irregular = [&](const char* name, const std::vector<Extent>& axes, BufferId of) {
      return build.IrregularSlotBuffer(name, axes, rows, expected, of);
    };
    sent = irregular("slots", cells.sent, send_counts);
    received = irregular("received_slots", cells.received, receive_counts);
    computed = irregular("expert_partial", cells.received, receive_counts);
    returned = irregular("returned_slots", cells.received, send_counts);
    summed = irregular("summed_slots", cells.sent, send_counts);
  }
};

// The same with a fixed share of the capacity for each slice, as Parm prints it; drops other tokens than the baseline
// unless there is one slice.
struct PaddedSlice {
  BufferId routing, sent, received, computed, returned, summed;

  PaddedSlice(GraphBuilder& build, const Workload& workload, BufferId slice) {
    const ParmCells cells(build, workload.layout);
    const int slices = workload.layout.tensor_parallel;
    build.CutSlots((build.sizes().slots + slices - 1) / slices, {});
    routing = build.Gate(slice);
    sent = build.SlotBuffer("slots", cells.sent);
    received = build.SlotBuffer("received_slots", cells.received);
    computed = build.SlotBuffer("expert_partial", cells.received);
    returned = build.SlotBuffer("returned_slots", cells.received);
    summed = build.SlotBuffer("summed_slots", cells.sent);
  }
};

// Sends the slots of a gated slice through the experts of the EP&ESP group and back; the result is one row a slot.
template <typename Slice>
BufferId ThroughExperts(GraphBuilder& build, BufferId tokens, const Slice& slice) {
  build.Dispatch(tokens, slice.routing, slice.sent);
  const BufferId received = build.AllToAll("dispatch_a2a", Group::kExpertShard, slice.sent, slice.received);
  build.Expert(received, slice.computed);
  const BufferId returned = build.AllToAll("combine_a2a", Group::kExpertShard, slice.computed, slice.returned);
  return build.SumShards(returned, slice.summed);
}

template <typename Slice>
TaskGraph BuildS1(const Workload& workload, const Cluster& cluster) {
  GraphBuilder build(workload, cluster);
  const Layout& layout = workload.layout;
  const int slice_tokens = SliceTokens(build, layout);
  const BufferId tokens = build.SliceOf(build.Input(), slice_tokens);
  const Slice slice(build, workload, tokens);
  const BufferId summed = ThroughExperts(build, tokens, slice);
  const BufferId combined = build.SliceBuffer("output_slice", slice_tokens);
  build.Combine(summed, slice.routing, combined);
  const BufferId output =
      build.AllGather("gather_output", Group::kTensor, combined,
                      build.TokenBuffer("output", {{Axis::kTensor, layout.tensor_parallel}}, slice_tokens));
  return std::move(build).Finish(output);
}

}  // namespace

// Parm §III, S1: pause MP before the gate, so that each MP rank works on its own slice of the tokens.
TaskGraph BuildParmS1(const Knobs&, const Workload& workload, const Cluster& cluster) {
  const bool exact = workload.capacity_passing == CapacityPassing::kExact && workload.layout.tensor_parallel > 1;
  return exact ? BuildS1<ExactSlice>(workload, cluster) : BuildS1<PaddedSlice>(workload, cluster);
}

// Parm §III, S2: pause MP after the gate, so that each MP rank works on its own share of every expert's slots.
TaskGraph BuildParmS2(const Knobs& knobs, const Workload& workload, const Cluster& cluster) {
  GraphBuilder build(workload, cluster);
  const Layout& layout = workload.layout;
  const ParmCells cells(build, layout);
  build.CutSlots(build.sizes().slots, {{Axis::kTensor, layout.tensor_parallel}});
  const BufferId input = build.Input();
  const BufferId routing = build.Gate(input);
  const BufferId sent = build.SlotBuffer("slots", cells.sent);
  build.Dispatch(input, routing, sent);
  const BufferId received =
      build.AllToAll("dispatch_a2a", Group::kExpertShard, sent, build.SlotBuffer("received_slots", cells.received));
  const BufferId partial = build.SlotBuffer("expert_partial", cells.received);
  build.Expert(received, partial);
  const BufferId returned = build.SlotBuffer("returned_slots", cells.received);
  BufferId gathered = build.SlotBuffer("gathered_slots", cells.gathered);
  if (knobs.overlapped_gather) {
    build.AllToAllAllGather("combine_saa", partial, returned, gathered);
  } else {
    const BufferId back = build.AllToAll("combine_a2a", Group::kExpertShard, partial, returned);
    const BufferId summed = build.SumShards(back, build.SlotBuffer("summed_slots", cells.sent));
    gathered = build.AllGather("gather_slots", Group::kTensor, summed, gathered);
  }
  const BufferId output = build.TokenBuffer("output", {}, build.tokens());
  build.Combine(gathered, routing, output);
  return std::move(build).Finish(output);
}

}  // namespace moeplan
