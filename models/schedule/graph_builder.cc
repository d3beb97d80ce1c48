#include "models/schedule/graph_builder.h"

#include <algorithm>
#include <set>
#include <utility>

#include "models/check.h"
#include "models/text.h"

namespace moeplan {
namespace {

constexpr double kCountBytes = 4;

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

GraphBuilder::GraphBuilder(const Workload& workload, const Cluster& cluster)
    : sizes_(SizesOf(workload.layer, workload.layout)),
      row_bytes_(static_cast<double>(workload.layer.model_dim) * workload.layer.bytes_per_element) {
  graph_.layer = workload.layer;
  graph_.layout = workload.layout;
  graph_.gpus_per_node = cluster.gpus_per_node;
  CutSlots(sizes_.slots, {});
}

void GraphBuilder::CutSlots(int capacity, std::vector<Extent> slot_axes) {
  int parts = 1;
  for (const Extent& extent : slot_axes) parts *= extent.size;
  graph_.capacity = capacity;
  graph_.slots_per_cell = (capacity + parts - 1) / parts;
  std::erase_if(slot_axes, [](const Extent& extent) { return extent.size == 1; });
  graph_.slot_axes = std::move(slot_axes);
}

void GraphBuilder::SetChunk(int chunk, bool named) {
  chunk_ = chunk;
  chunk_named_ = named;
}

BufferId GraphBuilder::AddBuffer(Buffer buffer) {
  std::erase_if(buffer.cells, [](const Extent& extent) { return extent.size == 1; });
  buffer.chunk = chunk_;
  graph_.buffers.push_back(std::move(buffer));
  writers_.emplace_back();
  return static_cast<BufferId>(graph_.buffers.size()) - 1;
}

BufferId GraphBuilder::Input() {
  graph_.input = TokenBuffer("input", {}, tokens());
  return graph_.input;
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

BufferId GraphBuilder::SlotBuffer(const std::string& name, std::vector<Extent> cells) {
  return TokenBuffer(name, std::move(cells), graph_.slots_per_cell);
}

BufferId GraphBuilder::IrregularSlotBuffer(const std::string& name, std::vector<Extent> cells, int max_rows,
                                           double expected_rows, BufferId counts) {
  return AddBuffer({.name = name,
                    .cells = std::move(cells),
                    .rows_per_cell = max_rows,
                    .expected_rows_per_cell = expected_rows,
                    .row_bytes = row_bytes_,
                    .counts = counts});
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
  graph_.buffers[view].view_block = block;
  return view;
}

StreamKind GraphBuilder::StreamOf(Group group) const {
  const GroupShape shape = ShapeOf(group, graph_.layout, graph_.gpus_per_node);
  return shape.ranks_per_node == shape.size ? StreamKind::kIntraNode : StreamKind::kInterNode;
}

std::vector<TaskId> GraphBuilder::WritersOf(BufferId buffer) const {
  std::vector<TaskId> writers = writers_[buffer];
  const auto add = [&](BufferId other) {
    writers.insert(writers.end(), writers_[other].begin(), writers_[other].end());
  };
  if (graph_.buffers[buffer].view_of != kNoBuffer) add(graph_.buffers[buffer].view_of);
  for (BufferId view = 0; view < static_cast<BufferId>(graph_.buffers.size()); ++view) {
    if (graph_.buffers[view].view_of == buffer) add(view);
  }
  if (graph_.buffers[buffer].counts != kNoBuffer) add(graph_.buffers[buffer].counts);
  return writers;
}

void GraphBuilder::AddTask(const std::string& name, TaskKind kind, StreamKind stream, double size, TaskOp op,
                           BufferId after) {
  std::set<TaskId> dependencies;
  const auto follow = [&](BufferId buffer) {
    for (const TaskId writer : WritersOf(buffer)) dependencies.insert(writer);
  };
  for (const BufferId read : Reads(op)) follow(read);
  if (after != kNoBuffer) follow(after);
  const TaskId id = static_cast<TaskId>(graph_.tasks.size());
  for (const BufferId written : Writes(op)) {
    // An irregular output cannot be laid out before its counts are known.
    if (const BufferId counts = graph_.buffers[written].counts; counts != kNoBuffer) {
      for (const TaskId writer : writers_[counts]) dependencies.insert(writer);
    }
    writers_[written].push_back(id);
  }
  graph_.tasks.push_back({.name = chunk_named_ ? StrCat(name, ".", chunk_ + 1) : name,
                          .kind = kind,
                          .stream = stream,
                          .chunk = chunk_,
                          .size = size,
                          .dependencies = {dependencies.begin(), dependencies.end()},
                          .op = std::move(op)});
}

BufferId GraphBuilder::Gate(BufferId tokens, BufferId counts) {
  const BufferId routing = AddBuffer({.name = "routing",
                                      .cells = buffer(tokens).cells,
                                      .rows_per_cell = buffer(tokens).rows_per_cell,
                                      .expected_rows_per_cell = buffer(tokens).expected_rows_per_cell,
                                      .row_bytes = RoutingRowBytes(graph_.layer)});
  AddTask("gate", TaskKind::kGate, StreamKind::kCompute, ExpectedBytes(buffer(tokens)),
          GateOp{.tokens = tokens, .routing = routing, .counts = counts});
  return routing;
}

void GraphBuilder::AssignSlots(BufferId all_counts, BufferId routing, BufferId send_counts) {
  AddTask("assign_slots", TaskKind::kOther, StreamKind::kCompute, 0,
          AssignSlotsOp{.all_counts = all_counts, .routing = routing, .send_counts = send_counts});
}

void GraphBuilder::Dispatch(BufferId tokens, BufferId routing, BufferId out) {
  AddTask("dispatch", TaskKind::kPermute, StreamKind::kCompute, ExpectedBytes(buffer(out)),
          DispatchOp{.tokens = tokens, .routing = routing, .out = out});
}

BufferId GraphBuilder::Collect(const std::string& name, Collective collective, Group group, BufferId in, BufferId out,
                               double bytes) {
  if (GroupSize(group, graph_.layout) == 1) return in;
  AddTask(name, KindOf(collective), StreamOf(group), bytes,
          CollectiveOp{.collective = collective, .group = group, .in = in, .out = out});
  return out;
}

BufferId GraphBuilder::AllToAll(const std::string& name, Group group, BufferId in, BufferId out) {
  const double bytes = std::max(ExpectedBytes(buffer(in)), ExpectedBytes(buffer(out)));
  return Collect(name, Collective::kAllToAll, group, in, out, bytes);
}

BufferId GraphBuilder::AllGather(const std::string& name, Group group, BufferId in, BufferId out) {
  return Collect(name, Collective::kAllGather, group, in, out, ExpectedBytes(buffer(out)));
}

BufferId GraphBuilder::ReduceScatter(const std::string& name, Group group, BufferId in, BufferId out) {
  return Collect(name, Collective::kReduceScatter, group, in, out, ExpectedBytes(buffer(in)));
}

BufferId GraphBuilder::AllReduce(const std::string& name, Group group, BufferId in, BufferId out) {
  return Collect(name, Collective::kAllReduce, group, in, out, ExpectedBytes(buffer(in)));
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

void GraphBuilder::AddSharedExpert() {
  const int chunk = std::exchange(chunk_, 0);
  const bool named = std::exchange(chunk_named_, false);
  const BufferId partial = TokenBuffer("shared_partial", {}, tokens());
  AddTask("shared_expert", TaskKind::kExpert, StreamKind::kCompute,
          SharedExpertFlops(graph_.layer, graph_.layout.tensor_parallel, tokens()),
          SharedExpertOp{.in = graph_.input, .out = partial});
  shared_ = AllReduce("reduce_shared", Group::kTensor, partial, TokenBuffer("shared_output", {}, tokens()));
  SetChunk(chunk, named);
}

void GraphBuilder::Expert(BufferId in, BufferId out) {
  if (graph_.layer.shared_hidden_dim > 0 && shared_ == kNoBuffer) AddSharedExpert();
  const double rows = Cells(buffer(in)) * buffer(in).expected_rows_per_cell;
  AddTask("expert", TaskKind::kExpert, StreamKind::kCompute,
          ExpertFlops(graph_.layer, graph_.layout.expert_sharding_parallel, rows), ExpertOp{.in = in, .out = out});
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

TaskGraph GraphBuilder::Finish(BufferId output) && {
  std::vector<bool> used(graph_.buffers.size(), false);
  const auto use = [&](BufferId id) {
    for (; id != kNoBuffer && !used[id]; id = graph_.buffers[id].view_of) {
      used[id] = true;
      if (graph_.buffers[id].counts != kNoBuffer) used[graph_.buffers[id].counts] = true;
    }
  };
  use(graph_.input);
  use(output);
  for (const Task& task : graph_.tasks) {
    for (const BufferId id : Reads(task.op)) use(id);
    for (const BufferId id : Writes(task.op)) use(id);
  }
  // An unused buffer keeps its number and gives up its memory.
  for (size_t id = 0; id < used.size(); ++id) {
    if (!used[id]) graph_.buffers[id] = {};
  }
  graph_.output = output;
  return std::move(graph_);
}

}  // namespace moeplan
