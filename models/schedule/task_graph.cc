#include "models/schedule/task_graph.h"

#include <algorithm>
#include <iterator>

#include "models/all_to_all/algorithm.h"

namespace moeplan {

std::string_view Name(TaskKind kind) {
  switch (kind) {
    case TaskKind::kOther: return "OTHER";
    case TaskKind::kGate: return "GATE";
    case TaskKind::kPermute: return "PERMUTE";
    case TaskKind::kEncode: return "ENCODE";
    case TaskKind::kAllToAll: return "ALL_TO_ALL";
    case TaskKind::kAllGather: return "ALL_GATHER";
    case TaskKind::kReduceScatter: return "REDUCE_SCATTER";
    case TaskKind::kAllReduce: return "ALL_REDUCE";
    case TaskKind::kDecode: return "DECODE";
    case TaskKind::kCopy: return "COPY";
    case TaskKind::kExpert: return "EXPERT";
    case TaskKind::kReduce: return "REDUCE";
    case TaskKind::kCombine: return "COMBINE";
  }
  return "?";
}

std::string_view Name(StreamKind stream) {
  switch (stream) {
    case StreamKind::kCompute: return "COMPUTE";
    case StreamKind::kIntraNode: return "INTRA_NODE";
    case StreamKind::kInterNode: return "INTER_NODE";
    case StreamKind::kCopy: return "COPY";
  }
  return "?";
}

int Cells(const Buffer& buffer) {
  int cells = 1;
  for (const Extent& extent : buffer.cells) cells *= extent.size;
  return cells;
}

double UnitRows(const Buffer& buffer) {
  double rows = buffer.units;
  for (const Extent& extent : buffer.cells) {
    if (extent.axis != Axis::kChunk) rows *= extent.size;
  }
  return rows;
}

double ExpectedBytes(const Buffer& buffer) {
  return UnitRows(buffer) * buffer.expected_rows_per_cell * buffer.row_bytes;
}

int ExtentOf(const Buffer& buffer, Axis axis) {
  for (const Extent& extent : buffer.cells) {
    if (extent.axis == axis) return extent.size;
  }
  return 1;
}

namespace {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace

BufferIds Reads(const TaskOp& op) {
  return std::visit(Overloaded{
                        [](const GateOp& gate) { return BufferIds{gate.tokens}; },
                        [](const AssignSlotsOp& assign) {
                          return BufferIds{assign.all_counts, assign.routing};
                        },
                        [](const DispatchOp& dispatch) {
                          return BufferIds{dispatch.tokens, dispatch.routing};
                        },
                        [](const CombineOp& combine) {
                          return BufferIds{combine.slots, combine.routing, combine.shared};
                        },
                        [](const ExpertInputGradientOp& expert) {
                          return BufferIds{expert.out_gradient, expert.hidden};
                        },
                        [](const ExpertWeightGradientOp& expert) {
                          return BufferIds{expert.in, expert.hidden, expert.out_gradient, expert.hidden_gradient};
                        },
                        [](const CombineGradientOp& combine) {
                          return BufferIds{combine.out_gradient, combine.routing};
                        },
                        [](const RoutingGradientOp& combine) {
                          return BufferIds{combine.out_gradient, combine.slots, combine.routing};
                        },
                        [](const DispatchGradientOp& dispatch) {
                          return BufferIds{dispatch.slots_gradient, dispatch.routing};
                        },
                        [](const GateGradientOp& gate) {
                          return BufferIds{gate.tokens,          gate.routing,         gate.routing_gradient,
                                           gate.tokens_gradient, gate.shared_gradient, gate.pair_counts};
                        },
                        [](const SplitByNodeOp& split) {
                          return BufferIds{split.tokens, split.routing};
                        },
                        [](const RelayRoutingOp& relay) { return BufferIds{relay.all_routings}; },
                        [](const SumOverNodesOp& sum) {
                          return BufferIds{sum.in, sum.node_routing};
                        },
                        [](const auto& from_in) { return BufferIds{from_in.in}; },
                    },
                    op);
}

BufferIds Writes(const TaskOp& op) {
  return std::visit(Overloaded{
                        [](const GateOp& gate) {
                          return BufferIds{gate.routing, gate.counts};
                        },
                        [](const AssignSlotsOp& assign) {
                          return BufferIds{assign.routing, assign.send_counts};
                        },
                        [](const CollectiveOp& collective) {
                          return BufferIds{collective.out, collective.partial};
                        },
                        [](const ExpertOp& expert) {
                          return BufferIds{expert.out, expert.hidden};
                        },
                        [](const SharedExpertOp& expert) {
                          return BufferIds{expert.out, expert.hidden};
                        },
                        [](const ExpertInputGradientOp& expert) {
                          return BufferIds{expert.in_gradient, expert.hidden_gradient};
                        },
                        [](const ExpertWeightGradientOp&) { return BufferIds{}; },
                        [](const CombineGradientOp& combine) { return BufferIds{combine.slots_gradient}; },
                        [](const RoutingGradientOp& combine) { return BufferIds{combine.routing_gradient}; },
                        [](const DispatchGradientOp& dispatch) { return BufferIds{dispatch.tokens_gradient}; },
                        [](const GateGradientOp& gate) {
                          return BufferIds{gate.in_gradient, gate.gate_gradient};
                        },
                        [](const SplitByNodeOp& split) {
                          return BufferIds{split.node_routing, split.node_counts};
                        },
                        [](const RelayRoutingOp& relay) {
                          return BufferIds{relay.routing, relay.row_counts, relay.pair_counts};
                        },
                        [](const auto& to_out) { return BufferIds{to_out.out}; },
                    },
                    op);
}

TaskRange TasksOf(const TaskGraph& graph, Phase phase) {
  const TaskId all = static_cast<TaskId>(graph.tasks.size());
  switch (phase) {
    case Phase::kForward: return {0, graph.first_backward};
    case Phase::kBackward: return {graph.first_backward, all};
    case Phase::kTraining: break;
  }
  return {0, all};
}

TaskGraph PartOf(TaskGraph graph, Phase phase) {
  const TaskRange range = TasksOf(graph, phase);
  if (range.first == 0 && range.end == static_cast<TaskId>(graph.tasks.size())) return graph;
  std::vector<Task> tasks(std::make_move_iterator(graph.tasks.begin() + range.first),
                          std::make_move_iterator(graph.tasks.begin() + range.end));
  for (Task& task : tasks) {
    std::erase_if(task.dependencies, [&](TaskId before) { return before < range.first; });
    for (TaskId& before : task.dependencies) before -= range.first;
  }
  graph.tasks = std::move(tasks);
  graph.first_backward = std::clamp(graph.first_backward - range.first, 0, range.end - range.first);
  return graph;
}

double AllToAllBytes(const Buffer& in, const Buffer& out) {
  const double bytes = std::max(ExpectedBytes(in), ExpectedBytes(out));
  if (in.counts == kNoBuffer) return bytes;
  // Whoever sends most irregular rows may send more than anyone receives, and dumps them into as many cells.
  const double unit_rows = std::max(UnitRows(in), UnitRows(out));
  return std::max(bytes, unit_rows * in.expected_rows_per_cell * in.row_bytes);
}

double MaxRows(const Buffer& buffer) { return UnitRows(buffer) * buffer.rows_per_cell; }

double ScratchBytes(const TaskGraph& graph, int rank) {
  double bytes = 0;
  for (const Task& task : graph.tasks) {
    const auto* op = std::get_if<CollectiveOp>(&task.op);
    if (op == nullptr || op->algorithm == AllToAllAlgorithm::kDirect) continue;
    const GroupShape group = ShapeOf(op->group, graph.layout, graph.gpus_per_node);
    const Buffer& received = graph.buffers[op->out];
    const double block_bytes = MaxRows(received) * received.row_bytes / group.size;
    const int blocks = ScratchBlocks(op->algorithm, group, IndexIn(op->group, graph.layout, rank));
    bytes = std::max(bytes, blocks * block_bytes);
  }
  return bytes;
}

double BufferBytes(const TaskGraph& graph) {
  double bytes = ScratchBytes(graph, /*rank=*/0);  // Leads its node.
  for (const Buffer& buffer : graph.buffers) {
    if (buffer.view_of == kNoBuffer) bytes += MaxRows(buffer) * buffer.row_bytes;
  }
  return bytes;
}

}  // namespace moeplan
