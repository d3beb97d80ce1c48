#include "proto/convert/training_graph.h"

#include <string>
#include <utility>

#include "proto/convert/enums.h"
#include "proto/convert/workload.h"
#include "proto/errors.h"

namespace moeplan {
namespace {

StatusOr<Work> WorkFromProto(const v1::KernelWork& message, std::string_view path) {
  const std::optional<CostKey> key = NamedCost(message.cost());
  if (key) return Work{.key = *key, .size = message.size()};
  return error::Mismatch(FieldPath(path, "cost"), StrCat("'", message.cost(), "'"),
                         "a kernel and its fields as warnings name them, such as EXPERT_GEMM bytesPerElement 2");
}

StatusOr<Instruction> InstructionFromProto(const v1::Instruction& message, std::string_view path) {
  Instruction one;
  one.id = message.id();
  ASSIGN_OR_RETURN(one.op, EnumFromProto<InstructionOp>(message.op(), FieldPath(path, "op")));
  ASSIGN_OR_RETURN(one.phase, EnumFromProto<Pass>(message.phase(), FieldPath(path, "phase")));
  if (message.has_time_s()) one.time_s = message.time_s();
  one.part_times_s.assign(message.part_times_s().begin(), message.part_times_s().end());
  one.inputs.assign(message.inputs().begin(), message.inputs().end());
  one.outputs.assign(message.outputs().begin(), message.outputs().end());
  one.forward = message.forward();
  one.layer = message.layer();
  one.weight_gradient = message.weight_gradient();
  ASSIGN_OR_RETURN(one.gate, EnumFromProto<GateKind>(message.gate(), FieldPath(path, "gate")));
  if (message.has_bytes()) one.bytes = message.bytes();
  if (message.has_group_size()) one.group_size = message.group_size();
  if (message.has_ranks_per_node()) one.ranks_per_node = message.ranks_per_node();
  if (message.stream() != v1::Stream::UNSPECIFIED) {
    ASSIGN_OR_RETURN(one.stream, EnumFromProto<StreamKind>(message.stream(), FieldPath(path, "stream")));
  }
  for (const v1::KernelWork& kernel : message.work()) {
    const std::string at = ItemPath(FieldPath(path, "work"), one.work.size());
    ASSIGN_OR_RETURN(Work work, WorkFromProto(kernel, at));
    one.work.push_back(std::move(work));
  }
  one.output_bytes.assign(message.output_bytes().begin(), message.output_bytes().end());
  if (message.has_counts_bytes()) one.counts_bytes = message.counts_bytes();
  return one;
}

v1::Instruction ToProto(const Instruction& one) {
  v1::Instruction message;
  message.set_id(one.id);
  message.set_op(EnumToProto<v1::Instruction::Op>(one.op));
  message.set_phase(EnumToProto<v1::Instruction::Pass>(one.phase));
  if (one.time_s) message.set_time_s(*one.time_s);
  message.mutable_part_times_s()->Assign(one.part_times_s.begin(), one.part_times_s.end());
  message.mutable_inputs()->Assign(one.inputs.begin(), one.inputs.end());
  message.mutable_outputs()->Assign(one.outputs.begin(), one.outputs.end());
  if (!one.forward.empty()) message.set_forward(one.forward);
  if (!one.layer.empty()) message.set_layer(one.layer);
  message.set_weight_gradient(one.weight_gradient);
  message.set_gate(EnumToProto<v1::Gate::Kind>(one.gate));
  if (one.bytes) message.set_bytes(*one.bytes);
  if (one.group_size) message.set_group_size(*one.group_size);
  if (one.ranks_per_node) message.set_ranks_per_node(*one.ranks_per_node);
  if (one.stream) message.set_stream(EnumToProto<v1::Stream::Kind>(*one.stream));
  for (const Work& work : one.work) {
    v1::KernelWork& kernel = *message.add_work();
    kernel.set_cost(Describe(work.key));
    kernel.set_size(work.size);
  }
  message.mutable_output_bytes()->Assign(one.output_bytes.begin(), one.output_bytes.end());
  if (one.counts_bytes) message.set_counts_bytes(*one.counts_bytes);
  return message;
}

}  // namespace

StatusOr<TrainingGraph> TrainingGraphFromProto(const v1::TrainingGraph& message, std::string_view path) {
  TrainingGraph graph;
  for (const v1::Instruction& item : message.instructions()) {
    const std::string at = ItemPath(FieldPath(path, "instructions"), graph.instructions.size());
    ASSIGN_OR_RETURN(Instruction one, InstructionFromProto(item, at));
    graph.instructions.push_back(std::move(one));
  }
  if (message.has_max_parts()) graph.max_parts = message.max_parts();
  graph.group_s = message.group_s();
  graph.max_range_s = message.max_range_s();
  if (message.has_most_bytes()) graph.most_bytes = message.most_bytes();
  for (const v1::MeasuredStep& step : message.measured_steps()) {
    graph.measured_steps.push_back(
        {.parts = step.parts(), .first = step.first(), .last = step.last(), .time_s = step.time_s()});
  }
  if (message.has_workload()) {
    ASSIGN_OR_RETURN(graph.workload, WorkloadFromProto(message.workload(), FieldPath(path, "workload")));
  }
  return graph;
}

v1::TrainingGraph ToProto(const TrainingGraph& graph) {
  v1::TrainingGraph message;
  for (const Instruction& one : graph.instructions) *message.add_instructions() = ToProto(one);
  message.set_max_parts(graph.max_parts);
  message.set_group_s(graph.group_s);
  message.set_max_range_s(graph.max_range_s);
  if (graph.most_bytes) message.set_most_bytes(*graph.most_bytes);
  for (const MeasuredStep& step : graph.measured_steps) {
    v1::MeasuredStep& measured = *message.add_measured_steps();
    measured.set_parts(step.parts);
    if (!step.first.empty()) measured.set_first(step.first);
    if (!step.last.empty()) measured.set_last(step.last);
    measured.set_time_s(step.time_s);
  }
  if (graph.workload) *message.mutable_workload() = ToProto(*graph.workload);
  return message;
}

}  // namespace moeplan
