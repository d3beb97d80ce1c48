#include "models/schedule/graph_builder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "models/check.h"
#include "models/schedule/streams.h"
#include "models/text.h"
#include "models/workload/codec.h"

namespace moeplan {
namespace {

constexpr double kCountBytes = 4;
constexpr double kFloatBytes = 4;

// Of each pair of a token: expert and slot as int32, weight as float.
double RoutingRowBytes(const Layer& layer) { return 12.0 * RoutingWidth(layer); }

TaskKind KindOf(Collective collective) {
  switch (collective) {
    case Collective::kAllToAll:
    case Collective::kAllToAllAllGather: return TaskKind::kAllToAll;
    case Collective::kAllGather: return TaskKind::kAllGather;
    case Collective::kReduceScatter: return TaskKind::kReduceScatter;
    case Collective::kAllReduce: return TaskKind::kAllReduce;
  }
  return TaskKind::kOther;
}

}  // namespace

GraphBuilder::GraphBuilder(const Workload& workload, const Cluster& cluster, std::vector<int> chunk_units)
    : sizes_(SizesOf(workload.layer, workload.layout)),
      row_bytes_(static_cast<double>(workload.layer.model_dim) * workload.layer.bytes_per_element),
      trains_(workload.phase != Phase::kForward) {
  graph_.layer = workload.layer;
  graph_.layout = workload.layout;
  graph_.gpus_per_node = cluster.gpus_per_node;
  graph_.chunk_units = std::move(chunk_units);
  constexpr size_t kUsual = 64;
  graph_.tasks.reserve(kUsual);
  graph_.buffers.reserve(kUsual);
  writers_.reserve(kUsual);
  views_.reserve(kUsual);
  CutSlots(sizes_.slots, {});
}

void GraphBuilder::CutSlots(int capacity, std::vector<Extent> slot_axes, int most) {
  int parts = 1;
  for (const Extent& extent : slot_axes) parts *= extent.axis == Axis::kChunk ? UnitsOf(extent.size) : extent.size;
  graph_.capacity = capacity;
  graph_.slots_per_cell = (most + parts - 1) / parts;
  std::erase_if(slot_axes, [](const Extent& extent) { return extent.size == 1; });
  graph_.slot_axes = std::move(slot_axes);
}

int GraphBuilder::UnitsOf(int chunks) const {
  const std::vector<int>& units = graph_.chunk_units;
  return units.empty() ? chunks : std::accumulate(units.begin(), units.end(), 0);
}

void GraphBuilder::SetChunk(int chunk, bool named) {
  chunk_ = chunk;
  chunk_named_ = named;
}

void GraphBuilder::StartBackward() {
  DecodeAll();
  backward_ = true;
  graph_.first_backward = static_cast<TaskId>(graph_.tasks.size());
}

BufferId GraphBuilder::AddBuffer(Buffer buffer) {
  std::erase_if(buffer.cells, [](const Extent& extent) { return extent.size == 1; });
  buffer.chunk = chunk_;
  buffer.units = ExtentOf(buffer, Axis::kChunk);
  graph_.buffers.push_back(std::move(buffer));
  writers_.emplace_back();
  views_.emplace_back();
  return static_cast<BufferId>(graph_.buffers.size()) - 1;
}

BufferId GraphBuilder::Input() {
  graph_.input = TokenBuffer("input", {}, tokens());
  return graph_.input;
}

BufferId GraphBuilder::OutputGradient() {
  graph_.output_gradient = TokenBuffer("output_gradient", {}, tokens());
  // It is given, but not before the output is there.
  AddWritersOf(graph_.output, writers_[graph_.output_gradient]);
  return graph_.output_gradient;
}

BufferId GraphBuilder::GateGradientBuffer(const std::string& name) {
  return AddBuffer({.name = name,
                    .rows_per_cell = graph_.layer.experts,
                    .expected_rows_per_cell = static_cast<double>(graph_.layer.experts),
                    .row_bytes = kFloatBytes * (graph_.layer.model_dim + (graph_.layer.router.bias ? 1 : 0)),
                    .float_rows = true});
}

BufferId GraphBuilder::Like(const std::string& name, BufferId other, double row_bytes) {
  Buffer like = buffer(other);
  like.name = name;
  like.row_bytes = row_bytes;
  like.view_of = kNoBuffer;
  const int chunk = like.chunk, units = like.units;
  const BufferId id = AddBuffer(std::move(like));
  graph_.buffers[id].chunk = chunk;
  graph_.buffers[id].units = units;
  return id;
}

BufferId GraphBuilder::TokenBuffer(const std::string& name, std::vector<Extent> cells, int rows) {
  return AddBuffer({.name = name,
                    .cells = std::move(cells),
                    .rows_per_cell = rows,
                    .expected_rows_per_cell = static_cast<double>(rows),
                    .row_bytes = row_bytes_});
}

BufferId GraphBuilder::SliceOf(BufferId tokens, int rows) {
  if (graph_.layout.tensor_parallel == 1) return tokens;
  const BufferId slice = View(buffer(tokens).name + "_slice", tokens, {}, rows, kOwnTensorBlock);
  graph_.buffers[slice].sliced = true;
  return slice;
}

BufferId GraphBuilder::SliceBuffer(const std::string& name, int rows) {
  const BufferId slice = TokenBuffer(name, {}, rows);
  graph_.buffers[slice].sliced = graph_.layout.tensor_parallel > 1;
  return slice;
}

// The chunk that is built, or all where they are among the cells.
BufferId GraphBuilder::InUnits(BufferId slots) {
  const int chunks = ExtentOf(buffer(slots), Axis::kChunk);
  if (!graph_.chunk_units.empty()) {
    graph_.buffers[slots].units = chunks > 1 ? UnitsOf(chunks) : graph_.chunk_units[chunk_];
  }
  return slots;
}

BufferId GraphBuilder::SlotBuffer(const std::string& name, std::vector<Extent> cells) {
  return InUnits(TokenBuffer(name, std::move(cells), graph_.slots_per_cell));
}

BufferId GraphBuilder::IrregularSlotBuffer(const std::string& name, std::vector<Extent> cells, int max_rows,
                                           double expected_rows, BufferId counts) {
  return InUnits(AddBuffer({.name = name,
                            .cells = std::move(cells),
                            .rows_per_cell = max_rows,
                            .expected_rows_per_cell = expected_rows,
                            .row_bytes = row_bytes_,
                            .counts = counts}));
}

BufferId GraphBuilder::CountBuffer(const std::string& name, std::vector<Extent> cells) {
  return AddBuffer({.name = name,
                    .cells = std::move(cells),
                    .rows_per_cell = 1,
                    .expected_rows_per_cell = 1,
                    .row_bytes = kCountBytes});
}

BufferId GraphBuilder::View(const std::string& name, BufferId of, std::vector<Extent> cells, int rows, int block) {
  const BufferId view = TokenBuffer(name, std::move(cells), rows);
  graph_.buffers[view].view_of = of;
  views_[of].push_back(view);
  graph_.buffers[view].view_block = block;
  return view;
}

BufferId GraphBuilder::ViewOfChunk(BufferId all, BufferId piece) {
  graph_.buffers[piece].view_of = all;
  views_[all].push_back(piece);
  const std::vector<int>& units = graph_.chunk_units;
  graph_.buffers[piece].view_block = units.empty() ? chunk_ : std::accumulate(units.begin(), units.begin() + chunk_, 0);
  return piece;
}

GroupShape GraphBuilder::ShapeOf(Among among) const {
  return moeplan::ShapeOf(among.team, moeplan::ShapeOf(among.group, graph_.layout, graph_.gpus_per_node));
}

StreamKind GraphBuilder::StreamOf(Among among) const { return moeplan::StreamOf(ShapeOf(among)); }

void GraphBuilder::AddWritersOf(BufferId buffer, std::vector<TaskId>& writers) const {
  const auto add = [&](BufferId other) {
    writers.insert(writers.end(), writers_[other].begin(), writers_[other].end());
  };
  add(buffer);
  if (graph_.buffers[buffer].view_of != kNoBuffer) add(graph_.buffers[buffer].view_of);
  for (const BufferId view : views_[buffer]) add(view);
  if (graph_.buffers[buffer].counts != kNoBuffer) add(graph_.buffers[buffer].counts);
}

void GraphBuilder::AddTask(const std::string& name, TaskKind kind, StreamKind stream, double size, TaskOp op,
                           BufferId after) {
  for (const BufferId read : Reads(op)) DecodeWhatIsReadBy(read);
  std::vector<TaskId> dependencies;
  dependencies.reserve(8);
  for (const BufferId read : Reads(op)) AddWritersOf(read, dependencies);
  if (after != kNoBuffer) AddWritersOf(after, dependencies);
  const TaskId id = static_cast<TaskId>(graph_.tasks.size());
  for (const BufferId written : Writes(op)) {
    // An irregular output cannot be laid out before its counts are known.
    if (const BufferId counts = graph_.buffers[written].counts; counts != kNoBuffer) {
      dependencies.insert(dependencies.end(), writers_[counts].begin(), writers_[counts].end());
    }
    writers_[written].push_back(id);
  }
  std::ranges::sort(dependencies);
  dependencies.erase(std::unique(dependencies.begin(), dependencies.end()), dependencies.end());
  std::string full_name;
  full_name.reserve(name.size() + sizeof "grad_.1000");
  if (backward_) full_name = "grad_";
  full_name += name;
  if (chunk_named_) full_name.append(".").append(std::to_string(chunk_ + 1));
  graph_.tasks.push_back({.name = std::move(full_name),
                          .kind = kind,
                          .stream = stream,
                          .chunk = chunk_,
                          .size = size,
                          .dependencies = std::move(dependencies),
                          .op = std::move(op)});
}

GraphBuilder::Gated GraphBuilder::Gate(BufferId tokens) {
  const BufferId counts = balances() ? CountBuffer("pair_counts", {{Axis::kExpert, graph_.layer.experts}}) : kNoBuffer;
  return {.routing = AddGate(tokens, counts, /*drops=*/true), .pair_counts = counts};
}

GraphBuilder::Gated GraphBuilder::GateExactly(BufferId tokens, BufferId send_counts) {
  const BufferId counts = CountBuffer(
      "slice_counts", {{Axis::kExpertRank, graph_.layout.expert_parallel}, {Axis::kExpert, local_experts()}});
  const BufferId routing = AddGate(tokens, counts, /*drops=*/false);
  const BufferId all_counts = GatherCounts(counts);
  AddTask("assign_slots", TaskKind::kOther, StreamKind::kCompute, 0,
          AssignSlotsOp{.all_counts = all_counts, .routing = routing, .send_counts = send_counts});
  return {.routing = routing, .pair_counts = balances() ? all_counts : kNoBuffer};
}

BufferId GraphBuilder::GatherCounts(BufferId slice_counts) {
  std::vector<Extent> gathered = buffer(slice_counts).cells;
  gathered.insert(gathered.begin(), {Axis::kTensor, graph_.layout.tensor_parallel});
  return AllGather("gather_counts", Group::kTensor, slice_counts, CountBuffer("all_counts", gathered));
}

BufferId GraphBuilder::AddGate(BufferId tokens, BufferId counts, bool drops) {
  const BufferId routing = AddBuffer({.name = "routing",
                                      .cells = buffer(tokens).cells,
                                      .rows_per_cell = buffer(tokens).rows_per_cell,
                                      .expected_rows_per_cell = buffer(tokens).expected_rows_per_cell,
                                      .row_bytes = RoutingRowBytes(graph_.layer)});
  AddTask("gate", TaskKind::kGate, StreamKind::kCompute, ExpectedBytes(buffer(tokens)),
          GateOp{.tokens = tokens, .routing = routing, .counts = counts, .drops = drops});
  return routing;
}

BufferId GraphBuilder::NodeRows(const std::string& name, int max_rows, double expected_rows, double row_bytes,
                                BufferId counts) {
  return AddBuffer({.name = name,
                    .cells = {{Axis::kNode, nodes()}},
                    .rows_per_cell = max_rows,
                    .expected_rows_per_cell = expected_rows,
                    .row_bytes = row_bytes,
                    .counts = counts});
}

GraphBuilder::SentByNode GraphBuilder::SplitByNode(BufferId tokens, BufferId routing) {
  const SentByNode sent = {.routing = Like("node_routing", routing, buffer(routing).row_bytes),
                           .counts = CountBuffer("node_counts", {{Axis::kNode, nodes()}})};
  AddTask(
      "split_by_node", TaskKind::kOther, StreamKind::kCompute, 0,
      SplitByNodeOp{.tokens = tokens, .routing = routing, .node_routing = sent.routing, .node_counts = sent.counts});
  return sent;
}

GraphBuilder::Relay GraphBuilder::RelayRouting(BufferId routing) {
  const int rows = buffer(routing).rows_per_cell;
  const auto of_place = [&](const std::string& name) {
    return NodeRows(name, rows, rows, buffer(routing).row_bytes, /*counts=*/kNoBuffer);
  };
  const BufferId all = AllGather("gather_routing", {Group::kExpertShard, Team::kPlace}, routing, of_place("routings"));
  const Relay relay = {
      .routing = of_place("relay_routing"),
      .row_counts = CountBuffer("relay_row_counts", {{Axis::kNode, nodes()}}),
      .pair_counts = CountBuffer("relay_pair_counts", {{Axis::kExpertRank, ShapeOf(Group::kExpertShard).ranks_per_node /
                                                                               graph_.layout.expert_sharding_parallel},
                                                       {Axis::kExpert, local_experts()}})};
  AddTask("relay_routing", TaskKind::kOther, StreamKind::kCompute, 0,
          RelayRoutingOp{.all_routings = all,
                         .routing = relay.routing,
                         .row_counts = relay.row_counts,
                         .pair_counts = relay.pair_counts});
  return relay;
}

BufferId GraphBuilder::SumOverNodes(BufferId in, BufferId node_routing, int rows) {
  const BufferId out = AddBuffer({.name = "routing_gradient",
                                  .rows_per_cell = rows,
                                  .expected_rows_per_cell = static_cast<double>(rows),
                                  .row_bytes = buffer(in).row_bytes,
                                  .float_rows = true});
  AddTask("sum_routing", TaskKind::kOther, StreamKind::kCompute, 0,
          SumOverNodesOp{.in = in, .node_routing = node_routing, .out = out});
  return out;
}

void GraphBuilder::Dispatch(BufferId tokens, BufferId routing, BufferId out, const char* name) {
  AddTask(name, TaskKind::kPermute, StreamKind::kCompute, ExpectedBytes(buffer(out)),
          DispatchOp{.tokens = tokens, .routing = routing, .out = out});
}

BufferId GraphBuilder::Collect(const std::string& name, Collective collective, Among among, BufferId in, BufferId out,
                               double bytes) {
  if (ShapeOf(among).size == 1) return in;
  AddTask(name, KindOf(collective), StreamOf(among), bytes,
          CollectiveOp{.collective = collective, .group = among.group, .team = among.team, .in = in, .out = out});
  return out;
}

BufferId GraphBuilder::EncodedLike(BufferId rows, Codec codec) {
  return Like(buffer(rows).name + "_encoded", rows,
              EncodedRowBytes(codec, graph_.layer.model_dim, graph_.layer.bytes_per_element));
}

BufferId GraphBuilder::AllToAll(const std::string& name, Among among, BufferId in, BufferId out, Codec codec, Way way) {
  if (codec == Codec::kNone || ShapeOf(among).size == 1) return AllToAll(name, among, in, out);
  const BufferId sent = EncodedLike(in, codec), received = EncodedLike(out, codec);
  AddTask(name + "_encode", TaskKind::kEncode, StreamKind::kCompute, ExpectedBytes(buffer(in)),
          EncodeOp{.codec = codec, .in = in, .out = sent, .way = way});
  AllToAll(name, among, sent, received);
  decodes_.push_back({.name = name + "_decode",
                      .chunk = chunk_,
                      .chunk_named = chunk_named_,
                      .op = {.codec = codec, .in = received, .out = out, .way = way}});
  return out;
}

void GraphBuilder::DecodeWhatIsReadBy(BufferId read) {
  const auto is_read = [&](const PutOff& decode) {
    const BufferId out = decode.op.out;
    return out == read || buffer(out).view_of == read || buffer(read).view_of == out;
  };
  for (auto next = std::ranges::find_if(decodes_, is_read); next != decodes_.end();
       next = std::ranges::find_if(decodes_, is_read)) {
    const PutOff decode = std::move(*next);
    decodes_.erase(next);
    const int chunk = std::exchange(chunk_, decode.chunk);
    const bool chunk_named = std::exchange(chunk_named_, decode.chunk_named);
    AddTask(decode.name, TaskKind::kDecode, StreamKind::kCompute, ExpectedBytes(buffer(decode.op.out)), decode.op);
    SetChunk(chunk, chunk_named);
  }
}

void GraphBuilder::DecodeAll() {
  while (!decodes_.empty()) DecodeWhatIsReadBy(decodes_.front().op.out);
}

BufferId GraphBuilder::AllToAll(const std::string& name, Among among, BufferId in, BufferId out) {
  return Collect(name, Collective::kAllToAll, among, in, out, AllToAllBytes(buffer(in), buffer(out)));
}

BufferId GraphBuilder::AllGather(const std::string& name, Among among, BufferId in, BufferId out) {
  return Collect(name, Collective::kAllGather, among, in, out, ExpectedBytes(buffer(out)));
}

BufferId GraphBuilder::ReduceScatter(const std::string& name, Among among, BufferId in, BufferId out) {
  return Collect(name, Collective::kReduceScatter, among, in, out, ExpectedBytes(buffer(in)));
}

BufferId GraphBuilder::AllReduce(const std::string& name, Among among, BufferId in, BufferId out) {
  return Collect(name, Collective::kAllReduce, among, in, out, ExpectedBytes(buffer(in)));
}

void GraphBuilder::AllToAllAllGather(const std::string& name, BufferId in, BufferId partial, BufferId out) {
  // It gathers over MP on a stream of EP&ESP, so no other collective over MP may be under way: one communicator, one
  // stream at a time.
  AddTask(name, TaskKind::kAllToAll, StreamOf(Group::kExpertShard), ExpectedBytes(buffer(partial)),
          CollectiveOp{.collective = Collective::kAllToAllAllGather,
                       .group = Group::kExpertShard,
                       .in = in,
                       .out = out,
                       .partial = partial},
          /*after=*/shared_);
}

void GraphBuilder::Copy(const std::string& name, StreamKind stream, BufferId in, BufferId out) {
  AddTask(name, TaskKind::kCopy, stream, ExpectedBytes(buffer(in)), CopyOp{.in = in, .out = out});
}

double GraphBuilder::ExpertFlopsOf(BufferId rows) const {
  return ExpertFlops(graph_.layer, graph_.layout.expert_sharding_parallel,
                     UnitRows(buffer(rows)) * buffer(rows).expected_rows_per_cell);
}

double GraphBuilder::HiddenRowBytes(int hidden_dim, int shards) const {
  const int widest = (hidden_dim + shards - 1) / shards;
  return static_cast<double>(graph_.layer.expert_matrices - 1) * widest * graph_.layer.bytes_per_element;
}

GraphBuilder::ExpertBuffers GraphBuilder::Expert(BufferId in, BufferId out) {
  const double row_bytes = HiddenRowBytes(graph_.layer.hidden_dim, graph_.layout.expert_sharding_parallel);
  const BufferId hidden = trains_ ? Like("hidden", in, row_bytes) : kNoBuffer;
  AddTask("expert", TaskKind::kExpert, StreamKind::kCompute, ExpertFlopsOf(in),
          ExpertOp{.in = in, .out = out, .hidden = hidden});
  return {.in = in, .hidden = hidden};
}

double GraphBuilder::SharedFlops() const {
  return SharedExpertFlops(graph_.layer, graph_.layout.tensor_parallel, tokens());
}

void GraphBuilder::SharedExpert() {
  if (graph_.layer.shared_hidden_dim == 0) return;
  const double row_bytes = HiddenRowBytes(graph_.layer.shared_hidden_dim, graph_.layout.tensor_parallel);
  const BufferId partial = TokenBuffer("shared_partial", {}, tokens());
  shared_hidden_ = trains_ ? Like("shared_hidden", graph_.input, row_bytes) : kNoBuffer;
  AddTask("shared_expert", TaskKind::kExpert, StreamKind::kCompute, SharedFlops(),
          SharedExpertOp{.in = graph_.input, .out = partial, .hidden = shared_hidden_});
  shared_ = AllReduce("reduce_shared", Group::kTensor, partial, TokenBuffer("shared_output", {}, tokens()));
}

GraphBuilder::SharedGradients GraphBuilder::SharedInputGradient(BufferId out_gradient) {
  if (graph_.layer.shared_hidden_dim == 0) return {};
  const BufferId hidden_gradient = Like("shared_hidden_gradient", shared_hidden_, buffer(shared_hidden_).row_bytes);
  const BufferId partial = TokenBuffer("shared_input_partial", {}, tokens());
  AddTask("shared_input", TaskKind::kExpert, StreamKind::kCompute, SharedFlops(),
          ExpertInputGradientOp{.out_gradient = out_gradient,
                                .hidden = shared_hidden_,
                                .in_gradient = partial,
                                .hidden_gradient = hidden_gradient,
                                .shared = true});
  shared_ = AllReduce("reduce_shared", Group::kTensor, partial, TokenBuffer("shared_gradient", {}, tokens()));
  return {.in_gradient = shared_,
          .weights = {.in = graph_.input,
                      .hidden = shared_hidden_,
                      .out_gradient = out_gradient,
                      .hidden_gradient = hidden_gradient,
                      .shared = true}};
}

BufferId GraphBuilder::SumShards(BufferId in, BufferId out) {
  if (graph_.layout.expert_sharding_parallel == 1) return in;
  AddTask("sum_shards", TaskKind::kReduce, StreamKind::kCompute, ExpectedBytes(buffer(in)),
          ReduceOp{.in = in, .out = out});
  return out;
}

void GraphBuilder::Combine(BufferId slots, BufferId routing, BufferId out) {
  BufferId shared = shared_;
  if (shared != kNoBuffer && buffer(out).sliced) shared = SliceOf(shared, buffer(out).rows_per_cell);
  const double added_bytes = shared == kNoBuffer ? 0 : ExpectedBytes(buffer(shared));
  AddTask("combine", TaskKind::kCombine, StreamKind::kCompute, ExpectedBytes(buffer(slots)) + added_bytes,
          CombineOp{.slots = slots, .routing = routing, .out = out, .shared = shared});
}

void GraphBuilder::CombineRelayed(BufferId slots, BufferId routing, BufferId out) {
  AddTask("relay_combine", TaskKind::kCombine, StreamKind::kCompute, ExpectedBytes(buffer(slots)),
          CombineOp{.slots = slots, .routing = routing, .out = out});
}

void GraphBuilder::CombineGradient(BufferId out_gradient, BufferId routing, BufferId slots_gradient, const char* name) {
  AddTask(name, TaskKind::kCombine, StreamKind::kCompute, ExpectedBytes(buffer(slots_gradient)),
          CombineGradientOp{.out_gradient = out_gradient, .routing = routing, .slots_gradient = slots_gradient});
}

BufferId GraphBuilder::RoutingGradient(BufferId out_gradient, BufferId slots, BufferId routing, const char* name) {
  const Buffer& tokens = buffer(out_gradient);
  const BufferId gradient = AddBuffer({.name = std::string(name) + "_gradient",
                                       .cells = tokens.cells,
                                       .rows_per_cell = tokens.rows_per_cell,
                                       .expected_rows_per_cell = tokens.expected_rows_per_cell,
                                       .row_bytes = kFloatBytes * RoutingWidth(graph_.layer),
                                       .counts = tokens.counts,
                                       .float_rows = true});
  AddTask(name, TaskKind::kReduce, StreamKind::kCompute, ExpectedBytes(buffer(slots)),
          RoutingGradientOp{
              .out_gradient = out_gradient, .slots = slots, .routing = routing, .routing_gradient = gradient});
  return gradient;
}

BufferId GraphBuilder::ExpertInputGradient(BufferId hidden, BufferId out_gradient, BufferId in_gradient) {
  const BufferId hidden_gradient = Like("hidden_gradient", hidden, buffer(hidden).row_bytes);
  AddTask("expert_input", TaskKind::kExpert, StreamKind::kCompute, ExpertFlopsOf(out_gradient),
          ExpertInputGradientOp{.out_gradient = out_gradient,
                                .hidden = hidden,
                                .in_gradient = in_gradient,
                                .hidden_gradient = hidden_gradient});
  return hidden_gradient;
}

void GraphBuilder::ExpertWeightGradient(const ExpertWeightGradientOp& op) {
  AddTask(op.shared ? "shared_weights" : "expert_weights", TaskKind::kExpert, StreamKind::kCompute,
          op.shared ? SharedFlops() : ExpertFlopsOf(op.in), op);
}

void GraphBuilder::DispatchGradient(BufferId slots_gradient, BufferId routing, BufferId tokens_gradient,
                                    const char* name) {
  AddTask(name, TaskKind::kPermute, StreamKind::kCompute, ExpectedBytes(buffer(slots_gradient)),
          DispatchGradientOp{.slots_gradient = slots_gradient, .routing = routing, .tokens_gradient = tokens_gradient});
}

BufferId GraphBuilder::GateGradient(BufferId tokens, const Gated& gated, BufferId routing_gradient,
                                    BufferId tokens_gradient, BufferId shared_gradient, BufferId in_gradient) {
  const BufferId gate_gradient = GateGradientBuffer("gate_gradient");
  // The logits again, and a product for each of the two gradients.
  AddTask("gate", TaskKind::kGate, StreamKind::kCompute, 3 * ExpectedBytes(buffer(tokens)),
          GateGradientOp{.tokens = tokens,
                         .routing = gated.routing,
                         .routing_gradient = routing_gradient,
                         .tokens_gradient = tokens_gradient,
                         .in_gradient = in_gradient,
                         .gate_gradient = gate_gradient,
                         .shared_gradient = shared_gradient,
                         .pair_counts = gated.pair_counts});
  return gate_gradient;
}

void GraphBuilder::SetGradients(BufferId input_gradient, BufferId gate_gradient) {
  graph_.input_gradient = input_gradient;
  graph_.gate_gradient = gate_gradient;
}

TaskGraph GraphBuilder::Finish() && {
  DecodeAll();
  if (!backward_) graph_.first_backward = static_cast<TaskId>(graph_.tasks.size());
  std::vector<bool> used(graph_.buffers.size(), false);
  const auto use = [&](BufferId id) {
    for (; id != kNoBuffer && !used[id]; id = graph_.buffers[id].view_of) {
      used[id] = true;
      if (graph_.buffers[id].counts != kNoBuffer) used[graph_.buffers[id].counts] = true;
    }
  };
  for (const BufferId id :
       {graph_.input, graph_.output, graph_.output_gradient, graph_.input_gradient, graph_.gate_gradient})
    use(id);
  for (const Task& task : graph_.tasks) {
    for (const BufferId id : Reads(task.op)) use(id);
    for (const BufferId id : Writes(task.op)) use(id);
  }
  // An unused buffer keeps its number and gives up its memory.
  for (size_t id = 0; id < used.size(); ++id) {
    if (!used[id]) graph_.buffers[id] = {};
  }
  return std::move(graph_);
}

}  // namespace moeplan
