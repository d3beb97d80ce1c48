// A schedule of one MoE layer as a graph of tasks over named buffers: written once, then priced (models/timeline), run
// (executor) or simulated.
//
// One graph serves every rank (SPMD): groups are named, and what differs between ranks (group members, own slice) is
// resolved by whoever runs it. Tasks are listed in launch order, which is a topological order; each stream runs its
// tasks in that order, and a task starts when its stream is free and what it depends on is done.
//
// Buffers hold rows. The rows are ordered by cells: a mixed-radix number over named axes, outermost first, each cell
// holding `rows_per_cell` rows. An irregular buffer has a `counts` buffer that says how many rows each cell really
// holds; its cells are then packed without gaps.
//
// A slot of an expert is a number 0 ... slots-1 within one source batch; `slot_axes` says how it is cut into tensor
// ranks, chunks and the slots of a cell. Values only; building and reading are pure.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/cost/profile.h"
#include "models/workload/groups.h"
#include "models/workload/workload.h"

namespace moeplan {

enum class TaskKind {
  kOther,
  kGate,
  kPermute,
  kEncode,
  kAllToAll,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kDecode,
  kCopy,
  kExpert,
  kReduce,
  kCombine,
};
enum class StreamKind { kCompute, kIntraNode, kInterNode, kCopy };
inline constexpr int kStreamKinds = 4;

std::string_view Name(TaskKind kind);
std::string_view Name(StreamKind stream);

enum class Axis {
  kTensor,      // Member of the MP group.
  kExpertRank,  // Member of the EP group: which experts, or whose tokens.
  kShard,       // Member of the ESP group.
  kBlock,       // Source batch gathered over ESP (BASELINE).
  kChunk,
  kExpert,  // Expert among those of one rank.
};

struct Extent {
  Axis axis;
  int size;

  friend bool operator==(const Extent&, const Extent&) = default;
};

using BufferId = int;
using TaskId = int;
inline constexpr BufferId kNoBuffer = -1;
inline constexpr int kOwnTensorBlock = -1;

struct Buffer {
  std::string name;
  std::vector<Extent> cells;          // Outermost first; empty: one cell.
  int rows_per_cell = 0;              // At most, for an irregular buffer.
  double expected_rows_per_cell = 0;  // What pricing counts; equals rows_per_cell for a regular buffer.
  double row_bytes = 0;
  BufferId counts = kNoBuffer;  // Of an irregular buffer: one int32 a cell.
  bool sliced = false;          // Token rows: the own slice over the MP group; the last slices may be short or empty.
  int chunk = 0;                // Which chunk of the slots this is, when kChunk is not among the cells.
  // A view is a part of another buffer, not memory of its own: of the rows of `view_of` cut into equal blocks of this
  // buffer's size, block `view_block`, or the block of the rank's own place in the MP group (the last may be short).
  BufferId view_of = kNoBuffer;
  int view_block = 0;

  friend bool operator==(const Buffer&, const Buffer&) = default;
};

int Cells(const Buffer& buffer);
double ExpectedBytes(const Buffer& buffer);
// The extent of `axis`, 1 where the buffer lacks it.
int ExtentOf(const Buffer& buffer, Axis axis);

// Scores the tokens of `tokens`, picks the experts of each by the layer's gate, and gives each pair its slot among the
// pairs of its block in that gate's order; pairs beyond the capacity are dropped. With `counts` set the block is a
// slice that does not know its slots yet: it drops nothing and writes how many pairs each expert got, and AssignSlots
// follows.
struct GateOp {
  BufferId tokens, routing, counts = kNoBuffer;
  friend bool operator==(const GateOp&, const GateOp&) = default;
};
// Exact capacity passing (design.md §5): from every slice's counts, the slots this slice owns; drops what is beyond the
// capacity, and writes how many rows go to each expert.
struct AssignSlotsOp {
  BufferId all_counts, routing, send_counts;
  friend bool operator==(const AssignSlotsOp&, const AssignSlotsOp&) = default;
};
// Tokens to the slots of `out`; slots without a token are zero.
struct DispatchOp {
  BufferId tokens, routing, out;
  friend bool operator==(const DispatchOp&, const DispatchOp&) = default;
};
// The blocks of `in` are cut over the group. Where `in` has fewer peers than the group, each block goes to that many
// consecutive ranks ("dump").
struct CollectiveOp {
  Collective collective;
  AllToAllAlgorithm algorithm = AllToAllAlgorithm::kDirect;
  Group group;
  BufferId in, out;
  // Of kAllToAllAllGather: `in` is exchanged over EP&ESP into `partial`, summed over shards, and gathered over MP.
  BufferId partial = kNoBuffer;
  friend bool operator==(const CollectiveOp&, const CollectiveOp&) = default;
};
// Cells of `in` to the cells of `out` with the same coordinates; a kChunk that `in` lacks is its `chunk`.
struct CopyOp {
  BufferId in, out;
  friend bool operator==(const CopyOp&, const CopyOp&) = default;
};
// The expert FFN (this rank's shard) on every row of `in`, to the row with the same coordinates in `out`.
struct ExpertOp {
  BufferId in, out;
  friend bool operator==(const ExpertOp&, const ExpertOp&) = default;
};
// The shared expert's FFN (this rank's hidden columns) on every token.
struct SharedExpertOp {
  BufferId in, out;
  friend bool operator==(const SharedExpertOp&, const SharedExpertOp&) = default;
};
// Sums over the kShard axis.
struct ReduceOp {
  BufferId in, out;
  friend bool operator==(const ReduceOp&, const ReduceOp&) = default;
};
// Weighted sum of each token's slots; where `slots` has a kBlock axis, in the own block. `shared` is added: what
// the shared expert made of the same tokens.
struct CombineOp {
  BufferId slots, routing, out, shared = kNoBuffer;
  friend bool operator==(const CombineOp&, const CombineOp&) = default;
};
using TaskOp = std::variant<GateOp, AssignSlotsOp, DispatchOp, CollectiveOp, CopyOp, ExpertOp, SharedExpertOp, ReduceOp,
                            CombineOp>;

struct Task {
  std::string name;  // Unique within the graph, such as "dispatch_a2a.2".
  TaskKind kind = TaskKind::kOther;
  StreamKind stream = StreamKind::kCompute;
  int chunk = 0;
  double size = 0;                   // Bytes as nccl-tests counts them, or flops of an EXPERT; 0: free.
  std::vector<TaskId> dependencies;  // Ascending, all before this task.
  TaskOp op;

  friend bool operator==(const Task&, const Task&) = default;
};

struct TaskGraph {
  Layer layer;
  Layout layout;
  int gpus_per_node = 1;
  std::vector<Extent> slot_axes;  // Of kTensor and kChunk, outermost first.
  int slots_per_cell = 0;         // What is left of a slot index inside a cell.
  int capacity = 0;               // Slots per expert and block that is gated; further pairs are dropped.
  std::vector<Buffer> buffers;
  std::vector<Task> tasks;
  BufferId input = kNoBuffer;   // B·L rows of M.
  BufferId output = kNoBuffer;  // Its first B·L rows are the answer.

  friend bool operator==(const TaskGraph&, const TaskGraph&) = default;
};

// Rows of memory the buffer takes at most.
double MaxRows(const Buffer& buffer);

// The buffers a task reads and writes.
std::vector<BufferId> Reads(const TaskOp& op);
std::vector<BufferId> Writes(const TaskOp& op);

// Bytes of all buffers of one rank that are no views: what running the graph allocates beside the weights.
double BufferBytes(const TaskGraph& graph);

}  // namespace moeplan
