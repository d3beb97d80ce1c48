#include "models/training/training_graph.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <unordered_map>

#include "models/cost/send.h"
#include "models/text.h"

namespace moeplan {
namespace {

using Places = std::unordered_map<std::string_view, int>;  // Of names among the instructions.

constexpr int kMostRanks = 1 << 20;     // Of a group.
constexpr int kMostFeatures = 1 << 24;  // Any number of a kernel's shape.

std::string At(const TrainingGraph& graph, int i) {
  return StrCat("instructions[", i, "] (", graph.instructions[i].id.substr(0, kLongestName), ")");
}

Status Bad(const std::string& where, std::string_view found, std::string_view expected) {
  return InvalidInput(StrCat(where, ": found ", found, ", expected ", expected));
}

Status CheckTime(const std::string& where, double time_s) {
  if (time_s >= 0 && time_s <= kLongestS) return OkStatus();
  return Bad(where, StrCat(time_s), StrCat("a finite number of at least 0 and at most ", kLongestS));
}

Status CheckLimits(const TrainingGraph& graph) {
  if (graph.instructions.empty()) return Bad("instructions", "none", "at least one");
  if (graph.instructions.size() > kMostInstructions) {
    return Bad("instructions", StrCat(graph.instructions.size()), StrCat("at most ", kMostInstructions));
  }
  size_t tensors = 0;
  for (const Instruction& one : graph.instructions) tensors += one.inputs.size() + one.outputs.size();
  if (tensors > kMostTensors) {
    return Bad("instructions", StrCat(tensors, " inputs and outputs"), StrCat("at most ", kMostTensors));
  }
  if (graph.max_parts < 1 || graph.max_parts > kMostParts) {
    return Bad("maxParts", StrCat(graph.max_parts), StrCat("a whole number of 1 to ", kMostParts));
  }
  if (graph.most_bytes && !(*graph.most_bytes > 0 && *graph.most_bytes <= kMostWork)) {
    return Bad("mostBytes", StrCat(*graph.most_bytes), StrCat("a finite number above 0 and at most ", kMostWork));
  }
  const auto check_limit_s = [](const char* name, double value_s) {
    if (std::isfinite(value_s) && value_s >= 0) return OkStatus();
    return Bad(name, StrCat(value_s), "a finite number of at least 0");
  };
  RETURN_IF_ERROR(check_limit_s("groupS", graph.group_s));
  return check_limit_s("maxRangeS", graph.max_range_s);
}

Status CheckName(const std::string& where, const std::string& name) {
  if (!name.empty() && name.size() <= kLongestName) return OkStatus();
  return Bad(where, StrCat(name.size(), " bytes"), StrCat("a name of 1 to ", kLongestName));
}

Status CheckNumbers(const Instruction& one, const std::string& at) {
  if (one.time_s) RETURN_IF_ERROR(CheckTime(at + ".timeS", *one.time_s));
  for (size_t k = 0; k < one.part_times_s.size(); ++k) {
    RETURN_IF_ERROR(CheckTime(StrCat(at, ".partTimesS[", k, "]"), one.part_times_s[k]));
  }
  const auto check_bytes = [&](const char* field, const std::optional<double>& bytes) {
    if (!bytes || (*bytes > 0 && *bytes <= kMostWork)) return OkStatus();
    return Bad(StrCat(at, ".", field), StrCat(*bytes), StrCat("a finite number above 0 and at most ", kMostWork));
  };
  RETURN_IF_ERROR(check_bytes("bytes", one.bytes));
  if (one.group_size && (*one.group_size < 1 || *one.group_size > kMostRanks)) {
    return Bad(at + ".groupSize", StrCat(*one.group_size), StrCat("a whole number of 1 to ", kMostRanks));
  }
  RETURN_IF_ERROR(check_bytes("countsBytes", one.counts_bytes));
  for (size_t i = 0; i < one.output_bytes.size(); ++i) {
    if (one.output_bytes[i] >= 0 && one.output_bytes[i] <= kMostWork) continue;
    return Bad(StrCat(at, ".outputBytes[", i, "]"), StrCat(one.output_bytes[i]),
               StrCat("a finite number of at least 0 and at most ", kMostWork));
  }
  for (size_t i = 0; i < one.work.size(); ++i) {
    if (std::isfinite(one.work[i].size) && one.work[i].size > 0 && one.work[i].size <= kMostWork) continue;
    return Bad(StrCat(at, ".work[", i, "].size"), StrCat(one.work[i].size),
               StrCat("a number above 0 and at most ", kMostWork));
  }
  if (one.ranks_per_node && (*one.ranks_per_node < 1 || *one.ranks_per_node > one.group_size.value_or(1 << 30))) {
    return Bad(at + ".ranksPerNode", StrCat(*one.ranks_per_node), "a whole number of 1 to groupSize");
  }
  return OkStatus();
}

// A kernel that runs alone, of a shape that some machine may have.
Status CheckKernel(const CostKey& key, const std::string& where) {
  const auto* kernel = std::get_if<KernelKey>(&key);
  if (kernel == nullptr) return Bad(where, Describe(key), "a kernel");
  if (kernel->contention != Contention::kNone || kernel->ctas != 0) {
    return Bad(where, Describe(key), "a kernel with nothing beside it");
  }
  RETURN_IF_ERROR(ValidateKernelKey(*kernel, where));
  for (const KernelShapeField& field : KernelShapeFields()) {
    const int value = kernel->shape.*field.value;
    if (value >= 0 && value <= kMostFeatures) continue;
    return Bad(StrCat(where, ".", field.name), StrCat(value), StrCat("at most ", kMostFeatures));
  }
  return OkStatus();
}

// Fields that go with some operations alone.
Status CheckFields(const Instruction& one, const std::string& at) {
  const bool communicates = CollectiveOf(one.op).has_value();
  if (!one.layer.empty() && one.phase != Pass::kForward) {
    return Bad(at + ".layer", one.layer, "none in phase BACKWARD, which is cut where forward is");
  }
  if (one.weight_gradient && communicates) {
    return Bad(at + ".weightGradient", "true", StrCat("false for an ", Name(one.op)));
  }
  if (one.counts_bytes && one.op != InstructionOp::kAllToAll) {
    return Bad(at + ".countsBytes", StrCat(*one.counts_bytes), "none but for an ALL_TO_ALL");
  }
  if (one.op == InstructionOp::kSend && one.group_size.value_or(2) != 2) {
    return Bad(at + ".groupSize", StrCat(*one.group_size), "2 for a SEND, which is to one rank");
  }
  if (!one.work.empty() && communicates) {
    return Bad(at + ".work", StrCat(one.work.size(), " of it"), "bytes and groupSize for a collective");
  }
  if (one.work.size() > kMostKernels) {
    return Bad(at + ".work", StrCat(one.work.size(), " kernels"), StrCat("at most ", kMostKernels));
  }
  for (size_t i = 0; i < one.work.size(); ++i) {
    RETURN_IF_ERROR(CheckKernel(one.work[i].key, StrCat(at, ".work[", i, "].cost")));
  }
  if (!one.output_bytes.empty() && one.output_bytes.size() != one.outputs.size()) {
    return Bad(at + ".outputBytes", StrCat(one.output_bytes.size(), " sizes"),
               StrCat("none, or one for each of ", one.outputs.size(), " outputs"));
  }
  if (!one.stream || (*one.stream == StreamKind::kCompute) != communicates) return OkStatus();
  return Bad(at + ".stream", std::string(Name(*one.stream)),
             communicates ? "another than COMPUTE for a collective" : "COMPUTE, or a collective");
}

Status CheckInstruction(const Instruction& one, const std::string& at) {
  RETURN_IF_ERROR(CheckName(at + ".id", one.id));
  for (const std::string& tensor : one.inputs) RETURN_IF_ERROR(CheckName(at + ".inputs", tensor));
  for (const std::string& tensor : one.outputs) RETURN_IF_ERROR(CheckName(at + ".outputs", tensor));
  if (!one.forward.empty()) RETURN_IF_ERROR(CheckName(at + ".forward", one.forward));
  if (!one.layer.empty()) RETURN_IF_ERROR(CheckName(at + ".layer", one.layer));
  RETURN_IF_ERROR(CheckNumbers(one, at));
  if (!CollectiveOf(one.op) && !one.time_s && one.part_times_s.empty()) {
    return Bad(at + ".timeS", "nothing", "its time in seconds, because only collectives are in a profile");
  }
  return CheckFields(one, at);
}

// "x#12", "x#12.counts" and "x#join" to "x"; other ids to nothing.
std::string_view WithoutPart(std::string_view id) {
  const size_t mark = id.rfind('#');
  if (mark == std::string_view::npos || mark + 1 == id.size()) return {};
  std::string_view part = id.substr(mark + 1);
  constexpr std::string_view kCounts = ".counts";
  if (part.ends_with(kCounts)) part.remove_suffix(kCounts.size());
  const bool number = std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
  return number || part == "join" ? id.substr(0, mark) : std::string_view();
}

Status CheckIds(const TrainingGraph& graph) {
  Places places;
  for (int i = 0; i < static_cast<int>(graph.instructions.size()); ++i) {
    const auto [first, is_new] = places.emplace(graph.instructions[i].id, i);
    if (!is_new) return Bad(At(graph, i) + ".id", "an id that " + At(graph, first->second) + " has", "one of its own");
  }
  for (int i = 0; i < static_cast<int>(graph.instructions.size()); ++i) {
    const auto other = places.find(WithoutPart(graph.instructions[i].id));
    if (other == places.end()) continue;
    return Bad(At(graph, i) + ".id", "the name of a part of " + At(graph, other->second), "another id");
  }
  return OkStatus();
}

Status CheckForwards(const TrainingGraph& graph) {
  Places places;
  for (int i = 0; i < static_cast<int>(graph.instructions.size()); ++i) {
    const Instruction& one = graph.instructions[i];
    places.emplace(one.id, i);
    if (one.forward.empty()) continue;
    if (one.phase != Pass::kBackward) return Bad(At(graph, i) + ".forward", one.forward, "none in phase FORWARD");
    const auto forward = places.find(one.forward);
    if (forward != places.end() && graph.instructions[forward->second].phase == Pass::kForward) continue;
    return Bad(At(graph, i) + ".forward", one.forward, "the id of an instruction before it in phase FORWARD");
  }
  return OkStatus();
}

Status CheckMeasuredStep(const TrainingGraph& graph, const Places& places, const MeasuredStep& step,
                         const std::string& at) {
  if (!(step.time_s > 0 && step.time_s <= kLongestS)) {
    return Bad(at + ".timeS", StrCat(step.time_s), StrCat("a finite number above 0 and at most ", kLongestS));
  }
  std::array<int, 2> ends = {};
  for (const auto& [field, id, place] :
       {std::tuple{".first", &step.first, &ends[0]}, {".last", &step.last, &ends[1]}}) {
    if (step.parts == 1) {
      if (id->empty()) continue;
      return Bad(at + field, *id, "none where nothing was cut");
    }
    const auto found = places.find(*id);
    if (found == places.end()) return Bad(at + field, StrCat("'", *id, "'"), "the id of an instruction");
    *place = found->second;
  }
  if (ends[0] > ends[1]) return Bad(at + ".last", step.last, StrCat(step.first, " or one behind it"));
  for (int i = ends[0]; i <= ends[1] && step.parts > 1; ++i) {
    if (graph.instructions[i].phase == Pass::kForward) continue;
    return Bad(at, StrCat("a range that has ", At(graph, i)), "instructions in phase FORWARD alone");
  }
  return OkStatus();
}

// No instruction of the backward pass stands between those of a layer.
Status CheckLayers(const TrainingGraph& graph) {
  const std::vector<bool> inside = InsideLayers(graph);
  for (int i = 0; i < static_cast<int>(graph.instructions.size()); ++i) {
    if (!inside[i] || graph.instructions[i].phase == Pass::kForward) continue;
    return Bad(At(graph, i) + ".phase", "BACKWARD between instructions of one layer", "layers within the forward pass");
  }
  return OkStatus();
}

// Ascending, and the step as it is among them, which the others are compared with.
Status CheckMeasuredSteps(const TrainingGraph& graph) {
  Places places;
  for (int i = 0; i < static_cast<int>(graph.instructions.size()); ++i) places.emplace(graph.instructions[i].id, i);
  if (graph.measured_steps.size() > kMostMeasuredSteps) {
    return Bad("measuredSteps", StrCat(graph.measured_steps.size()), StrCat("at most ", kMostMeasuredSteps));
  }
  int before = 0;
  for (size_t i = 0; i < graph.measured_steps.size(); ++i) {
    const MeasuredStep& step = graph.measured_steps[i];
    const std::string at = StrCat("measuredSteps[", i, "]");
    const bool in_order = i == 0 ? step.parts == 1 : step.parts > before;
    if (!in_order || step.parts > kMostParts) {
      return Bad(at + ".parts", StrCat(step.parts),
                 i == 0 ? "1, the step as it is" : StrCat("more than ", before, " and at most ", kMostParts));
    }
    before = step.parts;
    RETURN_IF_ERROR(CheckMeasuredStep(graph, places, step, at));
  }
  return OkStatus();
}

StatusOr<Places> ProducersByTensor(const TrainingGraph& graph) {
  Places producers;
  for (int i = 0; i < static_cast<int>(graph.instructions.size()); ++i) {
    for (const std::string& tensor : graph.instructions[i].outputs) {
      const auto [first, is_new] = producers.emplace(tensor, i);
      if (is_new) continue;
      return Bad(At(graph, i) + ".outputs", StrCat("'", tensor, "', which ", At(graph, first->second), " produces"),
                 "tensors with one producer");
    }
  }
  return producers;
}

std::vector<std::vector<int>> ProducersOf(const TrainingGraph& graph, const Places& by_tensor) {
  std::vector<std::vector<int>> producers(graph.instructions.size());
  for (size_t i = 0; i < producers.size(); ++i) {
    for (const std::string& tensor : graph.instructions[i].inputs) {
      if (const auto found = by_tensor.find(tensor); found != by_tensor.end()) producers[i].push_back(found->second);
    }
    std::ranges::sort(producers[i]);
    producers[i].erase(std::unique(producers[i].begin(), producers[i].end()), producers[i].end());
  }
  return producers;
}

// Whether `from` needs `target`, directly or not, whatever the order.
bool Needs(const std::vector<std::vector<int>>& producers, int from, int target) {
  std::vector<bool> seen(producers.size(), false);
  std::vector<int> open = {from};
  while (!open.empty()) {
    const int i = open.back();
    open.pop_back();
    if (i == target) return true;
    if (seen[i]) continue;
    seen[i] = true;
    open.insert(open.end(), producers[i].begin(), producers[i].end());
  }
  return false;
}

// Which tensor of `producer` the instruction reads.
std::string TensorBetween(const Instruction& producer, const Instruction& reader) {
  for (const std::string& tensor : reader.inputs) {
    if (std::ranges::find(producer.outputs, tensor) != producer.outputs.end()) return tensor;
  }
  return {};
}

Status CheckOrder(const TrainingGraph& graph, const Places& by_tensor) {
  const auto producers = ProducersOf(graph, by_tensor);
  for (int i = 0; i < static_cast<int>(producers.size()); ++i) {
    if (producers[i].empty() || producers[i].back() < i) continue;
    const int later = producers[i].back();
    const std::string tensor = TensorBetween(graph.instructions[later], graph.instructions[i]);
    if (later == i) return Bad(At(graph, i) + ".inputs", StrCat("its own output '", tensor, "'"), "no cycle");
    if (Needs(producers, later, i)) {
      return Bad(At(graph, i) + ".inputs", StrCat("'", tensor, "' of ", At(graph, later), ", which needs it in turn"),
                 "no cycle");
    }
    return Bad(At(graph, i) + ".inputs", StrCat("'", tensor, "', which only ", At(graph, later), " produces"),
               "an order in which producers come first");
  }
  return OkStatus();
}

}  // namespace

std::string_view Name(InstructionOp op) {
  constexpr std::array<std::string_view, 16> kNames = {
      "MATMUL", "ELEMENTWISE", "LAYER_NORM", "SOFTMAX",    "ATTENTION",      "GATE",       "DISPATCH", "ALL_TO_ALL",
      "EXPERT", "COMBINE",     "OTHER",      "ALL_GATHER", "REDUCE_SCATTER", "ALL_REDUCE", "SEND",     "HEAD_EXCHANGE"};
  return kNames[static_cast<size_t>(op)];
}

std::optional<Collective> CollectiveOf(InstructionOp op) {
  switch (op) {
    case InstructionOp::kSend:
    case InstructionOp::kHeadExchange:
    case InstructionOp::kAllToAll: return Collective::kAllToAll;
    case InstructionOp::kAllGather: return Collective::kAllGather;
    case InstructionOp::kReduceScatter: return Collective::kReduceScatter;
    case InstructionOp::kAllReduce: return Collective::kAllReduce;
    default: return std::nullopt;
  }
}

StreamKind StreamOf(const Instruction& one) {
  if (one.stream) return *one.stream;
  if (one.op == InstructionOp::kAllToAll) return StreamKind::kInterNode;
  if (one.op == InstructionOp::kSend) return StreamKind::kCopy;
  return CollectiveOf(one.op) ? StreamKind::kIntraNode : StreamKind::kCompute;
}

double CollectiveBytes(const Instruction& one, int parts) {
  const double bytes = one.bytes.value_or(0) / parts;
  return one.op == InstructionOp::kSend ? SendAsAllToAllBytes(bytes) : bytes;
}

Work CollectiveWork(const Instruction& one, int parts) {
  const CollectiveKey key = {.collective = *CollectiveOf(one.op), .group = {*one.group_size, *one.ranks_per_node}};
  return {.key = key, .size = CollectiveBytes(one, parts)};
}

Status ValidateTrainingGraph(const TrainingGraph& graph) {
  RETURN_IF_ERROR(CheckLimits(graph));
  for (int i = 0; i < static_cast<int>(graph.instructions.size()); ++i) {
    RETURN_IF_ERROR(CheckInstruction(graph.instructions[i], At(graph, i)));
  }
  RETURN_IF_ERROR(CheckIds(graph));
  RETURN_IF_ERROR(CheckForwards(graph));
  RETURN_IF_ERROR(CheckLayers(graph));
  RETURN_IF_ERROR(CheckMeasuredSteps(graph));
  ASSIGN_OR_RETURN(const Places by_tensor, ProducersByTensor(graph));
  return CheckOrder(graph, by_tensor);
}

std::vector<std::vector<int>> ProducersOf(const TrainingGraph& graph) {
  return ProducersOf(graph, *ProducersByTensor(graph));
}

std::vector<int> ForwardsOf(const TrainingGraph& graph) {
  Places places;
  std::vector<int> forwards;
  for (const Instruction& one : graph.instructions) {
    places.emplace(one.id, static_cast<int>(forwards.size()));
    forwards.push_back(one.forward.empty() ? -1 : places.at(one.forward));
  }
  return forwards;
}

std::vector<bool> InsideLayers(const TrainingGraph& graph) {
  const auto size = static_cast<int>(graph.instructions.size());
  Places last;
  for (int i = 0; i < size; ++i) {
    if (!graph.instructions[i].layer.empty()) last[graph.instructions[i].layer] = i;
  }
  std::vector<bool> inside(graph.instructions.size(), false);
  int until = -1;  // The last instruction of the layers that have begun.
  for (int i = 0; i < size; ++i) {
    inside[i] = i <= until;
    if (!graph.instructions[i].layer.empty()) until = std::max(until, last.at(graph.instructions[i].layer));
  }
  return inside;
}

int MostPartsOf(const Instruction& one, int max_parts) {
  return one.phase == Pass::kForward || !one.forward.empty() ? max_parts : 1;
}

}  // namespace moeplan
