#include "models/schedule/task_graph.h"

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

double ExpectedBytes(const Buffer& buffer) { return Cells(buffer) * buffer.expected_rows_per_cell * buffer.row_bytes; }

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

std::vector<BufferId> Reads(const TaskOp& op) {
  return std::visit(Overloaded{
                        [](const GateOp& gate) { return std::vector{gate.tokens}; },
                        [](const AssignSlotsOp& assign) {
                          return std::vector{assign.all_counts, assign.routing};
                        },
                        [](const DispatchOp& dispatch) {
                          return std::vector{dispatch.tokens, dispatch.routing};
                        },
                        [](const CombineOp& combine) {
                          return combine.shared == kNoBuffer
                                     ? std::vector{combine.slots, combine.routing}
                                     : std::vector{combine.slots, combine.routing, combine.shared};
                        },
                        [](const auto& from_in) { return std::vector{from_in.in}; },
                    },
                    op);
}

std::vector<BufferId> Writes(const TaskOp& op) {
  return std::visit(
      Overloaded{
          [](const GateOp& gate) {
            return gate.counts == kNoBuffer ? std::vector{gate.routing} : std::vector{gate.routing, gate.counts};
          },
          [](const AssignSlotsOp& assign) {
            return std::vector{assign.routing, assign.send_counts};
          },
          [](const CollectiveOp& collective) {
            return collective.partial == kNoBuffer ? std::vector{collective.out}
                                                   : std::vector{collective.out, collective.partial};
          },
          [](const auto& to_out) { return std::vector{to_out.out}; },
      },
      op);
}

double MaxRows(const Buffer& buffer) { return static_cast<double>(Cells(buffer)) * buffer.rows_per_cell; }

double BufferBytes(const TaskGraph& graph) {
  double bytes = 0;
  for (const Buffer& buffer : graph.buffers) {
    if (buffer.view_of == kNoBuffer) bytes += MaxRows(buffer) * buffer.row_bytes;
  }
  return bytes;
}

}  // namespace moeplan
