#include "models/schedule/families.h"

namespace moeplan {
namespace {

struct MontaCells {
  MontaCells(const GraphBuilder& build, const Layout& layout, int chunks)
      : sent{{Axis::kExpertRank, layout.expert_parallel}, {Axis::kExpert, build.local_experts()}},
        gathered{{Axis::kTensor, layout.tensor_parallel},
                 {Axis::kExpertRank, layout.expert_parallel},
                 {Axis::kExpert, build.local_experts()}},
        placed{{Axis::kExpert, build.local_experts()},
               {Axis::kExpertRank, layout.expert_parallel},
               {Axis::kTensor, layout.tensor_parallel},
               {Axis::kChunk, chunks}},
        by_chunk{{Axis::kChunk, chunks},
                 {Axis::kTensor, layout.tensor_parallel},
                 {Axis::kExpertRank, layout.expert_parallel},
                 {Axis::kExpert, build.local_experts()}} {}

  std::vector<Extent> sent;      // The own share of one chunk.
  std::vector<Extent> gathered;  // One chunk of the whole MP group.
  std::vector<Extent> placed;    // All chunks, the rows of an expert side by side.
  std::vector<Extent> by_chunk;  // All chunks, one after the other.
};

// Chunk `chunk` on its way to the experts; the result holds the slots of the whole MP group.
BufferId SendChunk(GraphBuilder& build, const MontaCells& cells, BufferId input, BufferId routing) {
  const BufferId sent = build.SlotBuffer("slots", cells.sent);
  build.Dispatch(input, routing, sent);
  const BufferId received =
      build.AllToAll("dispatch_a2a", Group::kExpert, sent, build.SlotBuffer("received_slots", cells.sent));
  return build.AllGather("gather_slots", Group::kTensor, received, build.SlotBuffer("gathered_slots", cells.gathered));
}

}  // namespace

// MoNTA §4 (ESP = MP): each MP rank sends its share of every expert's slots between nodes, and the shares are gathered
// inside the node. O2 and O3 cut both into chunks so that they overlap; the way back is cut likewise.
TaskGraph BuildMonta(const Knobs& knobs, const Workload& workload, const Cluster& cluster) {
  GraphBuilder build(workload, cluster);
  const Layout& layout = workload.layout;
  const int chunks = knobs.chunks;
  const bool named = chunks > 1;
  const bool copies = knobs.family != Family::kMontaO1;
  const MontaCells cells(build, layout, chunks);
  build.CutSlots(build.sizes().slots, {{Axis::kTensor, layout.tensor_parallel}, {Axis::kChunk, chunks}});

  const BufferId input = build.Input();
  const BufferId routing = build.Gate(input);
  BufferId placed = build.SlotBuffer("placed_slots", cells.placed);
  const StreamKind copy_stream = knobs.family == Family::kMontaO3 ? StreamKind::kCopy : build.StreamOf(Group::kTensor);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    build.SetChunk(chunk, named);
    const BufferId gathered = SendChunk(build, cells, input, routing);
    if (copies) {
      build.Copy("place", copy_stream, gathered, placed);
    } else {
      placed = gathered;
    }
  }

  build.SetChunk(0, /*named=*/false);
  const BufferId partial = build.SlotBuffer("expert_partial", cells.by_chunk);
  build.Expert(placed, partial);
  const BufferId returned = build.SlotBuffer("returned_slots", cells.by_chunk);
  std::vector<BufferId> scattered;
  const auto view = [&](const char* name, BufferId of, int chunk) {
    return chunks == 1 ? of : build.View(name, of, cells.gathered, build.slots_per_cell(), chunk);
  };
  for (int chunk = 0; chunk < chunks; ++chunk) {
    build.SetChunk(chunk, named);
    scattered.push_back(build.ReduceScatter("reduce_shards", Group::kTensor, view("expert_partial", partial, chunk),
                                            build.SlotBuffer("scattered_slots", cells.sent)));
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    build.SetChunk(chunk, named);
    const BufferId whole_chunk = view("returned_slots", returned, chunk);
    const bool gathers = layout.tensor_parallel > 1;
    const BufferId back = build.AllToAll("combine_a2a", Group::kExpert, scattered[chunk],
                                         gathers ? build.SlotBuffer("back_slots", cells.sent) : whole_chunk);
    build.AllGather("gather_back", Group::kTensor, back, whole_chunk);
  }

  build.SetChunk(0, /*named=*/false);
  const BufferId output = build.TokenBuffer("output", {}, build.tokens());
  const bool stayed = GroupSize(Group::kExpertShard, layout) == 1;  // Nothing was sent, so nothing came back.
  build.Combine(stayed ? partial : returned, routing, output);
  return std::move(build).Finish(output);
}

}  // namespace moeplan
