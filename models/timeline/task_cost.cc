#include "models/timeline/task_cost.h"

#include <algorithm>
#include <array>
#include <utility>

#include "models/measurement/cost_key.h"

namespace moeplan {
namespace {

// What precedes each task, as one number a stream: a stream is FIFO, so what precedes a task there is a prefix of it.
class StreamOrder {
 public:
  explicit StreamOrder(const TaskGraph& graph)
      : graph_(graph), before_(graph.tasks.size()), place_(graph.tasks.size()) {
    for (TaskId task = 0; task < static_cast<TaskId>(graph.tasks.size()); ++task) Add(task);
  }

  const std::vector<TaskId>& TasksOf(int stream) const { return streams_[stream]; }

  // The part [first, second) of another stream that may run beside `task`.
  std::pair<int, int> Beside(TaskId task, int stream) const {
    const std::vector<TaskId>& others = streams_[stream];
    const auto starts_after =
        std::partition_point(others.begin() + before_[task][stream], others.end(),
                             [&](TaskId other) { return before_[other][StreamOf(task)] <= place_[task]; });
    return {before_[task][stream], static_cast<int>(starts_after - others.begin())};
  }

 private:
  int StreamOf(TaskId task) const { return static_cast<int>(graph_.tasks[task].stream); }

  void Add(TaskId task) {
    std::vector<TaskId>& stream = streams_[StreamOf(task)];
    if (!stream.empty()) StartAfter(task, stream.back());
    for (const TaskId dependency : graph_.tasks[task].dependencies) StartAfter(task, dependency);
    place_[task] = static_cast<int>(stream.size());
    stream.push_back(task);
  }

  void StartAfter(TaskId task, TaskId earlier) {
    for (int stream = 0; stream < kStreamKinds; ++stream) {
      before_[task][stream] = std::max(before_[task][stream], before_[earlier][stream]);
    }
    int& before = before_[task][StreamOf(earlier)];
    before = std::max(before, place_[earlier] + 1);
  }

  const TaskGraph& graph_;
  std::array<std::vector<TaskId>, kStreamKinds> streams_;
  std::vector<std::array<int, kStreamKinds>> before_;  // By task: how many tasks of each stream precede it.
  std::vector<int> place_;                             // By task: its index in its stream.
};

// How many of the first i tasks of a stream impose each contention, for any i.
class ImposedCounts {
 public:
  // `costs`: of each task, whether it costs anything.
  ImposedCounts(const TaskGraph& graph, const std::vector<bool>& costs, const std::vector<TaskId>& stream)
      : counts_(1) {
    for (const TaskId task : stream) {
      counts_.push_back(counts_.back());
      if (costs[task]) ++counts_.back()[static_cast<int>(Imposed(graph.tasks[task]))];
    }
  }

  ContentionSet Between(std::pair<int, int> range) const {
    ContentionSet set;
    for (int kind = 0; kind < kContentions; ++kind) {
      set.set(kind, counts_[range.second][kind] > counts_[range.first][kind]);
    }
    return set;
  }

 private:
  std::vector<std::array<int, kContentions>> counts_;
};

struct CostOfOp {
  const double size;
  const TaskGraph& graph;

  std::optional<TaskCost> Charge(Kernel kernel) const {
    return TaskCost{KeyOf(kernel, graph.layer, graph.layout), size};
  }
  std::optional<TaskCost> Charge(Collective collective, AllToAllAlgorithm algorithm, Group group, double bytes,
                                 Team team = Team::kGroup) const {
    CollectiveKey key = KeyOf(collective, group, graph.layout, graph.gpus_per_node);
    key.group = ShapeOf(team, key.group);
    if (key.group.size == 1) return std::nullopt;
    key.algorithm = algorithm;
    key.bytes_per_element = graph.layer.bytes_per_element;
    key.ctas = graph.communication_ctas;
    return TaskCost{key, bytes};
  }

  std::optional<TaskCost> operator()(const CollectiveOp& op) const {
    if (op.collective != Collective::kAllToAllAllGather) {
      return Charge(op.collective, op.algorithm, op.group, size, op.team);
    }
    const int tensor_ranks = graph.layout.tensor_parallel;
    if (tensor_ranks == 1) return Charge(Collective::kAllToAll, op.algorithm, Group::kExpertShard, size);
    if (GroupSize(Group::kExpertShard, graph.layout) == 1) {
      return Charge(Collective::kAllGather, op.algorithm, Group::kTensor, size * tensor_ranks);
    }
    return Charge(op.collective, op.algorithm, Group::kExpertShard, size);
  }
  std::optional<TaskCost> operator()(const GateOp&) const { return Charge(Kernel::kGate); }
  std::optional<TaskCost> operator()(const DispatchOp&) const { return Charge(Kernel::kPermute); }
  std::optional<TaskCost> operator()(const CombineOp&) const { return Charge(Kernel::kPermute); }
  std::optional<TaskCost> operator()(const ReduceOp&) const { return Charge(Kernel::kPermute); }
  std::optional<TaskCost> operator()(const EncodeOp& op) const { return Charge(EncodeKernel(op.codec)); }
  std::optional<TaskCost> operator()(const DecodeOp& op) const { return Charge(DecodeKernel(op.codec)); }
  std::optional<TaskCost> operator()(const CopyOp&) const { return Charge(Kernel::kDeviceCopy); }
  std::optional<TaskCost> operator()(const ExpertOp&) const { return Charge(Kernel::kExpertGemm); }
  std::optional<TaskCost> operator()(const SharedExpertOp&) const {
    return ChargeExpert(Kernel::kExpertGemm, /*shared=*/true);
  }
  std::optional<TaskCost> ChargeExpert(Kernel kernel, bool shared) const {
    return TaskCost{
        shared ? SharedExpertKey(kernel, graph.layer, graph.layout) : KeyOf(kernel, graph.layer, graph.layout), size};
  }
  std::optional<TaskCost> operator()(const AssignSlotsOp&) const { return std::nullopt; }
  std::optional<TaskCost> operator()(const SplitByNodeOp&) const { return std::nullopt; }
  std::optional<TaskCost> operator()(const RelayRoutingOp&) const { return std::nullopt; }
  std::optional<TaskCost> operator()(const SumOverNodesOp&) const { return std::nullopt; }
  std::optional<TaskCost> operator()(const ExpertInputGradientOp& op) const {
    return ChargeExpert(Kernel::kExpertInputGradient, op.shared);
  }
  std::optional<TaskCost> operator()(const ExpertWeightGradientOp& op) const {
    return ChargeExpert(Kernel::kExpertWeightGradient, op.shared);
  }
  std::optional<TaskCost> operator()(const CombineGradientOp&) const { return Charge(Kernel::kPermute); }
  std::optional<TaskCost> operator()(const RoutingGradientOp&) const { return Charge(Kernel::kPermute); }
  std::optional<TaskCost> operator()(const DispatchGradientOp&) const { return Charge(Kernel::kPermute); }
  std::optional<TaskCost> operator()(const GateGradientOp&) const { return Charge(Kernel::kGate); }
};

}  // namespace

std::optional<TaskCost> CostOf(const Task& task, double size, const TaskGraph& graph) {
  if (size <= 0) return std::nullopt;
  return std::visit(CostOfOp{size, graph}, task.op);
}

std::optional<TaskCost> CostOf(const Task& task, const TaskGraph& graph) { return CostOf(task, task.size, graph); }

Contention Imposed(const Task& task) {
  switch (task.kind) {
    case TaskKind::kAllToAll: return Contention::kWithAllToAll;
    case TaskKind::kAllGather:
    case TaskKind::kReduceScatter:
    case TaskKind::kAllReduce: return Contention::kWithAllGather;
    case TaskKind::kCopy: return Contention::kWithCopy;
    case TaskKind::kGate:
    case TaskKind::kPermute:
    case TaskKind::kEncode:
    case TaskKind::kDecode:
    case TaskKind::kExpert:
    case TaskKind::kReduce:
    case TaskKind::kCombine: return Contention::kWithExpertGemm;
    case TaskKind::kOther: return Contention::kNone;
  }
  return Contention::kNone;
}

std::vector<ContentionSet> PossibleContention(const TaskGraph& graph) {
  std::vector<bool> costs;
  for (const Task& task : graph.tasks) costs.push_back(CostOf(task, graph).has_value());
  return PossibleContention(graph, costs);
}

std::vector<ContentionSet> PossibleContention(const TaskGraph& graph, const std::vector<bool>& costs) {
  const StreamOrder order(graph);
  std::vector<ContentionSet> beside(graph.tasks.size());
  for (int stream = 0; stream < kStreamKinds; ++stream) {
    const ImposedCounts imposed(graph, costs, order.TasksOf(stream));
    for (TaskId task = 0; task < static_cast<TaskId>(graph.tasks.size()); ++task) {
      const bool same_stream = static_cast<int>(graph.tasks[task].stream) == stream;
      if (same_stream || !costs[task]) continue;
      beside[task] |= imposed.Between(order.Beside(task, stream));
    }
  }
  for (ContentionSet& set : beside) set.reset(static_cast<int>(Contention::kNone));
  return beside;
}

}  // namespace moeplan
