// Builds a TaskGraph step by step: each step adds a task, sizes it, puts it on its stream and derives what it depends
// on from the buffers it reads.
//
// A collective over a group of one rank adds nothing and returns its input. Buffers are written once; a reader depends
// on the writers of the buffer, of the buffer it is a view of, and of its own views.
#pragma once

#include <string>
#include <vector>

#include "models/schedule/task_graph.h"

namespace moeplan {

// The ranks among which a collective runs: a group, or a team of it.
struct Among {
  constexpr Among(Group group, Team team = Team::kGroup) : group(group), team(team) {}  // NOLINT: a group is one.
  Group group;
  Team team;
};

class GraphBuilder {
 public:
  // `workload` must be resolved against `cluster`. `chunk_units`: as in TaskGraph.
  GraphBuilder(const Workload& workload, const Cluster& cluster, std::vector<int> chunk_units = {});

  const LayerSizes& sizes() const { return sizes_; }
  const Layer& layer() const { return graph_.layer; }
  const Layout& layout() const { return graph_.layout; }
  bool trains() const { return trains_; }
  // Whether the gradient of the router's load-balance loss counts.
  bool balances() const { return trains_ && graph_.layer.aux_loss_coefficient > 0; }
  int tokens() const { return static_cast<int>(sizes_.tokens); }
  int local_experts() const { return graph_.layer.experts / graph_.layout.expert_parallel; }

  // Beyond `capacity` slots per expert, pairs are dropped. The slots are dealt to the parts of `slot_axes` (see
  // TaskGraph); `most` of them are ever taken, where a rank knows that it holds fewer tokens than there are slots.
  void CutSlots(int capacity, std::vector<Extent> slot_axes) { CutSlots(capacity, std::move(slot_axes), capacity); }
  void CutSlots(int capacity, std::vector<Extent> slot_axes, int most);
  int slots_per_cell() const { return graph_.slots_per_cell; }
  // Of all chunks, where there are that many.
  int UnitsOf(int chunks) const;

  // All later tasks belong to this chunk; with `named` their names end in ".<chunk + 1>".
  void SetChunk(int chunk, bool named);
  int chunk() const { return chunk_; }

  // Names of later tasks and buffers begin with "grad_".
  void StartBackward();

  BufferId Input();
  BufferId OutputGradient();
  // E rows of M floats.
  BufferId GateGradientBuffer(const std::string& name);
  BufferId TokenBuffer(const std::string& name, std::vector<Extent> cells, int rows);
  // The own slice of `tokens` over the MP group, of `rows` rows; `tokens` itself when MP has one rank.
  BufferId SliceOf(BufferId tokens, int rows);
  // Room for the result of such a slice.
  BufferId SliceBuffer(const std::string& name, int rows);
  // Rows of M elements in {cells} × slots_per_cell.
  BufferId SlotBuffer(const std::string& name, std::vector<Extent> cells);
  BufferId IrregularSlotBuffer(const std::string& name, std::vector<Extent> cells, int max_rows, double expected_rows,
                               BufferId counts);
  BufferId CountBuffer(const std::string& name, std::vector<Extent> cells);
  BufferId View(const std::string& name, BufferId of, std::vector<Extent> cells, int rows, int block);
  // Turns `piece`, a fresh buffer of the current chunk, into that chunk's part of `all`.
  BufferId ViewOfChunk(BufferId all, BufferId piece);

  // The routing of tokens, and, where the graph balances, the counts that GateGradientOp wants.
  struct Gated {
    BufferId routing = kNoBuffer, pair_counts = kNoBuffer;
    // The routing of the rows that are sent, where those are not the tokens' slots themselves.
    BufferId sent_routing = kNoBuffer;
    BufferId sent() const { return sent_routing == kNoBuffer ? routing : sent_routing; }
  };
  Gated Gate(BufferId tokens);
  // The same of a slice, which drops what its batch drops (design.md §5): ranks of MP gather the counts of their slices
  // first. `send_counts` gets how many pairs of each expert are left.
  Gated GateExactly(BufferId tokens, BufferId send_counts);
  BufferId GatherCounts(BufferId slice_counts);
  // The steps of rows that cross once to each node; see the ops. They make room for what they return.
  struct SentByNode {
    BufferId routing = kNoBuffer, counts = kNoBuffer;
  };
  SentByNode SplitByNode(BufferId tokens, BufferId routing);
  struct Relay {
    BufferId routing = kNoBuffer, row_counts = kNoBuffer, pair_counts = kNoBuffer;
  };
  // The ranks of the own place gather their routings first.
  Relay RelayRouting(BufferId routing);
  BufferId SumOverNodes(BufferId in, BufferId node_routing, int rows);
  // Makes room for rows of `row_bytes` for each node: at most `max_rows`, as many as `counts` says.
  BufferId NodeRows(const std::string& name, int max_rows, double expected_rows, double row_bytes, BufferId counts);
  double row_bytes() const { return row_bytes_; }
  int nodes() const { return ShapeOf({Group::kExpertShard, Team::kPlace}).size; }
  GroupShape ShapeOf(Among among) const;

  void Dispatch(BufferId tokens, BufferId routing, BufferId out, const char* name = "dispatch");
  // `out` describes the result; it is returned, or `in` when the group has one rank.
  BufferId AllToAll(const std::string& name, Among among, BufferId in, BufferId out);
  // With rows encoded by the codec of that way. They are decoded where `out` is first read, rather than at once, so
  // that what is computed until then does not wait for them.
  BufferId AllToAll(const std::string& name, Among among, BufferId in, BufferId out, Codec codec, Way way);
  BufferId AllGather(const std::string& name, Among among, BufferId in, BufferId out);
  BufferId ReduceScatter(const std::string& name, Among among, BufferId in, BufferId out);
  BufferId AllReduce(const std::string& name, Among among, BufferId in, BufferId out);
  void AllToAllAllGather(const std::string& name, BufferId in, BufferId partial, BufferId out);
  void Copy(const std::string& name, StreamKind stream, BufferId in, BufferId out);
  // What a backward pass needs of a forward expert task; `hidden` is absent in forward graphs.
  struct ExpertBuffers {
    BufferId in = kNoBuffer, hidden = kNoBuffer;
  };
  ExpertBuffers Expert(BufferId in, BufferId out);
  // Puts the layer's shared expert, where it has one, here: its compute then runs while tokens are still on their way,
  // and its sum over MP while the experts compute. Combine adds what it made.
  void SharedExpert();
  // `in` unless there are shards to sum.
  BufferId SumShards(BufferId in, BufferId out);
  void Combine(BufferId slots, BufferId routing, BufferId out);
  // The same of rows that go on to others, without what the shared expert made.
  void CombineRelayed(BufferId slots, BufferId routing, BufferId out);

  // The mirrors of the above; see the ops. What they return they make room for.
  void CombineGradient(BufferId out_gradient, BufferId routing, BufferId slots_gradient, const char* name = "combine");
  BufferId RoutingGradient(BufferId out_gradient, BufferId slots, BufferId routing, const char* name = "routing");
  BufferId ExpertInputGradient(BufferId hidden, BufferId out_gradient, BufferId in_gradient);
  // Of the shared expert, summed over MP; nothing where the layer has none. `weights` is for ExpertWeightGradient.
  struct SharedGradients {
    BufferId in_gradient = kNoBuffer;
    ExpertWeightGradientOp weights = {};
  };
  SharedGradients SharedInputGradient(BufferId out_gradient);
  void ExpertWeightGradient(const ExpertWeightGradientOp& op);
  void DispatchGradient(BufferId slots_gradient, BufferId routing, BufferId tokens_gradient,
                        const char* name = "dispatch");
  // Without a shared expert `shared_gradient` is kNoBuffer.
  BufferId GateGradient(BufferId tokens, const Gated& gated, BufferId routing_gradient, BufferId tokens_gradient,
                        BufferId shared_gradient, BufferId in_gradient);

  StreamKind StreamOf(Among among) const;
  bool is_backward() const { return backward_; }
  const Buffer& buffer(BufferId id) const { return graph_.buffers[id]; }

  void SetOutput(BufferId output) { graph_.output = output; }
  void SetGradients(BufferId input_gradient, BufferId gate_gradient);
  // The finished graph; buffers that no task uses are dropped.
  TaskGraph Finish() &&;

 private:
  BufferId AddBuffer(Buffer buffer);
  BufferId InUnits(BufferId slots);
  BufferId AddGate(BufferId tokens, BufferId counts, bool drops);
  BufferId EncodedLike(BufferId buffer, Codec codec);
  BufferId Collect(const std::string& name, Collective collective, Among among, BufferId in, BufferId out,
                   double bytes);
  // Depends on the writers of what it reads and of `after`.
  void AddTask(const std::string& name, TaskKind kind, StreamKind stream, double size, TaskOp op,
               BufferId after = kNoBuffer);
  void AddWritersOf(BufferId buffer, std::vector<TaskId>& writers) const;
  // Adds the decodings that were put off and write `buffer`, a part of it, or what it is a part of.
  void DecodeWhatIsReadBy(BufferId buffer);
  void DecodeAll();
  BufferId Like(const std::string& name, BufferId buffer, double row_bytes);
  double ExpertFlopsOf(BufferId rows) const;
  double SharedFlops() const;
  double HiddenRowBytes(int hidden_dim, int shards) const;

  TaskGraph graph_;
  LayerSizes sizes_;
  double row_bytes_;
  bool trains_;
  bool backward_ = false;
  int chunk_ = 0;
  bool chunk_named_ = false;
  struct PutOff {
    std::string name;
    int chunk = 0;
    bool chunk_named = false;
    DecodeOp op;
  };
  std::vector<PutOff> decodes_;
  // What the shared expert made in this pass, summed over MP, and what it keeps for the backward one.
  BufferId shared_ = kNoBuffer, shared_hidden_ = kNoBuffer;
  std::vector<std::vector<TaskId>> writers_;  // By buffer.
  std::vector<std::vector<BufferId>> views_;  // Of each buffer.
};

}  // namespace moeplan
