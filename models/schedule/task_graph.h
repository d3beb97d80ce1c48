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
// A slot of an expert is a number 0 ... slots-1 within one source batch. Slots are dealt like cards to the parts of
// `slot_axes` (tensor ranks, chunks): slot = row in the cell · parts + part, so that the first slots, which are the
// ones most likely taken, are spread evenly. Chunks of unequal sizes take `chunk_units` of the parts of kChunk each,
// one after the other, and a cell of theirs as many times the rows.
//
// A graph of phase TRAINING holds the forward tasks and, from `first_backward` on, the backward ones, which read what
// the forward ones left in the buffers. Values only; building and reading are pure.
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/cost/collective.h"
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
  kNode,    // Node among those that the EP&ESP group lies on.
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
  std::vector<Extent> cells;  // Outermost first; empty: one cell.
  int rows_per_cell = 0;      // Of a unit; at most, for an irregular buffer.
  // What pricing counts: equals rows_per_cell for a regular buffer; of an irregular one the mean over the cells of the
  // rank that has most rows.
  double expected_rows_per_cell = 0;
  double row_bytes = 0;
  BufferId counts = kNoBuffer;  // Of an irregular buffer: one int32 a cell.
  bool sliced = false;          // Token rows: the own slice over the MP group; the last slices may be short or empty.
  int chunk = 0;                // Which chunk of the slots this is, when kChunk is not among the cells.
  int units = 1;                // Of that chunk; of all chunks, when kChunk is among the cells.
  bool float_rows = false;      // Rows of floats, whatever bytes_per_element says.
  // A view is a part of another buffer, not memory of its own: of the rows of `view_of` cut into equal blocks of its
  // size, that of one unit, those from `view_block` on, or the block of the rank's own place in the MP group (the last
  // may be short).
  BufferId view_of = kNoBuffer;
  int view_block = 0;

  friend bool operator==(const Buffer&, const Buffer&) = default;
};

int Cells(const Buffer& buffer);
// The rows of all cells, where each has one row for each of its units.
double UnitRows(const Buffer& buffer);
double ExpectedBytes(const Buffer& buffer);
// The extent of `axis`, 1 where the buffer lacks it.
int ExtentOf(const Buffer& buffer, Axis axis);

// Scores the tokens of `tokens`, picks the experts of each by the layer's gate, and gives each pair its slot among the
// pairs of its block in that gate's order; pairs beyond the capacity are dropped, unless the block is a slice that does
// not know its slots yet: then AssignSlots follows. `counts`, where set, gets how many pairs of the own block chose
// each expert, dropped ones included.
struct GateOp {
  BufferId tokens, routing, counts = kNoBuffer;
  bool drops = true;
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
// Tells a token's row where to go once for each node of the EP&ESP group that has kept pairs of the token.
// `node_routing` is a routing whose experts are nodes: the choices of a token are its nodes in their order, with weight
// 1, and the slot is the token's place among those that go there. `node_counts` says for each node how many do.
struct SplitByNodeOp {
  BufferId tokens, routing, node_routing, node_counts;
  friend bool operator==(const SplitByNodeOp&, const SplitByNodeOp&) = default;
};
// Makes of the routings of the ranks of the own place, `all_routings`, one behind the other, that of the rows which
// these send here: the `routing` of the rows among the experts of the own node, with places among all their pairs for
// slots; how many rows each of the ranks sends, and how many pairs each expert of the node has.
struct RelayRoutingOp {
  BufferId all_routings, routing, row_counts, pair_counts;
  friend bool operator==(const RelayRoutingOp&, const RelayRoutingOp&) = default;
};
// Adds up the rows of floats that came back from a token's nodes: the gradients of its pairs' weights.
struct SumOverNodesOp {
  BufferId in, node_routing, out;
  friend bool operator==(const SumOverNodesOp&, const SumOverNodesOp&) = default;
};
// The blocks of `in` are cut over the group, or over a team of it. Where `in` has fewer peers than that, each block goes
// to that many consecutive ranks ("dump").
struct CollectiveOp {
  Collective collective;
  AllToAllAlgorithm algorithm = AllToAllAlgorithm::kDirect;
  Group group;
  Team team = Team::kGroup;
  BufferId in = kNoBuffer, out = kNoBuffer;
  // Of kAllToAllAllGather: `in` is exchanged over EP&ESP into `partial`, summed over shards, and gathered over MP.
  BufferId partial = kNoBuffer;
  friend bool operator==(const CollectiveOp&, const CollectiveOp&) = default;
};
// Of a pass, which of its two exchanges of rows: that of the dispatch or that of the combine. Each has its codec.
enum class Way { kThere, kBack };
// Every row of `in` to its code in `out`, which has the same cells (models/workload/codec.h); and back.
struct EncodeOp {
  Codec codec;
  BufferId in, out;
  Way way = Way::kThere;
  friend bool operator==(const EncodeOp&, const EncodeOp&) = default;
};
struct DecodeOp {
  Codec codec;
  BufferId in, out;
  Way way = Way::kThere;
  friend bool operator==(const DecodeOp&, const DecodeOp&) = default;
};
// Cells of `in` to the cells of `out` with the same coordinates; a kChunk that `in` lacks is its `chunk`.
struct CopyOp {
  BufferId in, out;
  friend bool operator==(const CopyOp&, const CopyOp&) = default;
};
// The expert FFN (this rank's shard) on every row of `in`, to the row with the same coordinates in `out`. In training
// the values before the nonlinearity are kept in `hidden`, which has the cells of `in`.
struct ExpertOp {
  BufferId in, out, hidden = kNoBuffer;
  friend bool operator==(const ExpertOp&, const ExpertOp&) = default;
};
// The shared expert's FFN (this rank's hidden columns) on every token; `hidden` as in ExpertOp.
struct SharedExpertOp {
  BufferId in, out, hidden = kNoBuffer;
  friend bool operator==(const SharedExpertOp&, const SharedExpertOp&) = default;
};
// From the gradient of an expert's output that of its input, with the coordinates as in ExpertOp, and that of what
// `hidden` holds. `out_gradient`, `hidden` and `hidden_gradient` have the same cells.
struct ExpertInputGradientOp {
  BufferId out_gradient, hidden, in_gradient, hidden_gradient;
  bool shared = false;  // Of the shared expert, on every token.
  friend bool operator==(const ExpertInputGradientOp&, const ExpertInputGradientOp&) = default;
};
// Adds the rows' part, times `scale`, to the gradients of the expert weights (dW), which are no buffer of the graph.
// Nothing in the graph waits for it.
struct ExpertWeightGradientOp {
  BufferId in, hidden, out_gradient, hidden_gradient;
  double scale = 1;     // 1 / the number of ranks that compute the same row.
  bool shared = false;  // Of the shared expert, on every token.
  friend bool operator==(const ExpertWeightGradientOp&, const ExpertWeightGradientOp&) = default;
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
// The mirror of CombineOp towards the slots: each slot gets its token's gradient times its gate weight; slots without a
// token are zero.
struct CombineGradientOp {
  BufferId out_gradient, routing, slots_gradient;
  friend bool operator==(const CombineGradientOp&, const CombineGradientOp&) = default;
};
// The mirror of CombineOp towards the gate weights: of each (token, choice), the product of the token's gradient and
// what its slot brought back; 0 for pairs without a slot. In the own block.
struct RoutingGradientOp {
  BufferId out_gradient, slots, routing, routing_gradient;
  friend bool operator==(const RoutingGradientOp&, const RoutingGradientOp&) = default;
};
// The mirror of DispatchOp: the sum of a token's slots.
struct DispatchGradientOp {
  BufferId slots_gradient, routing, tokens_gradient;
  friend bool operator==(const DispatchGradientOp&, const DispatchGradientOp&) = default;
};
// The mirror of GateOp in the own block: the gradient of the gate's weights, and that of its input added to what came
// through the experts and through the shared one. The losses of the router count as the layer's coefficients say; that
// of its load needs the counts of every slice of the source batch. Where weights multiply what experts get there is no
// routing_gradient, and tokens_gradient is that of what they got.
struct GateGradientOp {
  BufferId tokens, routing, routing_gradient, tokens_gradient, in_gradient, gate_gradient;
  BufferId shared_gradient = kNoBuffer, pair_counts = kNoBuffer;
  friend bool operator==(const GateGradientOp&, const GateGradientOp&) = default;
};
using TaskOp = std::variant<GateOp, AssignSlotsOp, DispatchOp, CollectiveOp, EncodeOp, DecodeOp, CopyOp, ExpertOp,
                            SharedExpertOp, ReduceOp, CombineOp, ExpertInputGradientOp, ExpertWeightGradientOp,
                            CombineGradientOp, RoutingGradientOp, DispatchGradientOp, GateGradientOp, SplitByNodeOp,
                            RelayRoutingOp, SumOverNodesOp>;

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
  int communication_ctas = 0;     // The most that a collective may use; 0: the library's own choice.
  std::vector<Extent> slot_axes;  // Of kTensor and kChunk, outermost first.
  std::vector<int> chunk_units;   // Of each chunk; empty: one each.
  int slots_per_cell = 0;         // The most slots of an expert that one part gets.
  int capacity = 0;               // Slots per expert and block that is gated; further pairs are dropped.
  std::vector<Buffer> buffers;
  std::vector<Task> tasks;
  BufferId input = kNoBuffer;   // B·L rows of M.
  BufferId output = kNoBuffer;  // Its first B·L rows are the answer.
  // Of a graph with backward tasks: B·L rows each, and E rows of M floats.
  BufferId output_gradient = kNoBuffer, input_gradient = kNoBuffer, gate_gradient = kNoBuffer;
  TaskId first_backward = 0;  // The number of tasks where there are none.

  friend bool operator==(const TaskGraph&, const TaskGraph&) = default;
};

// The tasks that a run of `phase` is about: all, or only those of its pass.
struct TaskRange {
  TaskId first = 0, end = 0;
};
TaskRange TasksOf(const TaskGraph& graph, Phase phase);

// The graph of those tasks alone, as if everything before them were done; its buffers are those of the whole graph.
TaskGraph PartOf(TaskGraph graph, Phase phase);

// Rows of memory the buffer takes at most.
double MaxRows(const Buffer& buffer);

// A few buffers.
class BufferIds {
 public:
  BufferIds() = default;
  // kNoBuffer does not count.
  BufferIds(std::initializer_list<BufferId> ids) {
    for (const BufferId id : ids) {
      if (id != kNoBuffer) ids_.at(count_++) = id;
    }
  }
  const BufferId* begin() const { return ids_.data(); }
  const BufferId* end() const { return ids_.data() + count_; }

 private:
  std::array<BufferId, 6> ids_;
  int count_ = 0;
};

// What the rank that sends or receives most brings into an all-to-all from `in` to `out`.
double AllToAllBytes(const Buffer& in, const Buffer& out);

// The buffers a task reads and writes.
BufferIds Reads(const TaskOp& op);
BufferIds Writes(const TaskOp& op);

// What the all-to-alls need on the way on rank `rank` of the stage (ScratchBlocks of models/all_to_all/algorithm.h);
// they run one after the other and share it.
double ScratchBytes(const TaskGraph& graph, int rank);

// Bytes of all buffers of one rank that are no views, and of the most scratch: what running the graph allocates beside
// the weights.
double BufferBytes(const TaskGraph& graph);

}  // namespace moeplan
