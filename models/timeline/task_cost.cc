#include "models/timeline/task_cost.h"

#include <array>
#include <cstdint>

namespace moeplan {
namespace {

// One bit a task; row t holds every task that is done before t starts.
class Ancestors {
 public:
  explicit Ancestors(const TaskGraph& graph) : words_((graph.tasks.size() + 63) / 64) {
    bits_.resize(graph.tasks.size() * words_);
    std::array<TaskId, kStreamKinds> last;
    last.fill(-1);
    for (TaskId task = 0; task < static_cast<TaskId>(graph.tasks.size()); ++task) {
      TaskId& before = last[static_cast<int>(graph.tasks[task].stream)];
      if (before >= 0) Inherit(task, before);
      for (const TaskId dependency : graph.tasks[task].dependencies) Inherit(task, dependency);
      before = task;
    }
  }

  bool Precedes(TaskId first, TaskId second) const { return bits_[second * words_ + first / 64] >> (first % 64) & 1; }

 private:
  void Inherit(TaskId task, TaskId before) {
    for (size_t word = 0; word < words_; ++word) bits_[task * words_ + word] |= bits_[before * words_ + word];
    bits_[task * words_ + before / 64] |= std::uint64_t{1} << (before % 64);
  }

  size_t words_;
  std::vector<std::uint64_t> bits_;
};

struct CostOfOp {
  const Task& task;
  const TaskGraph& graph;

  std::optional<TaskCost> Charge(Kernel kernel) const {
    return TaskCost{KeyOf(kernel, graph.layer, graph.layout), task.size};
  }
  std::optional<TaskCost> Charge(Collective collective, AllToAllAlgorithm algorithm, Group group, double bytes) const {
    CollectiveKey key = KeyOf(collective, group, graph.layout, graph.gpus_per_node);
    if (key.group.size == 1) return std::nullopt;
    key.algorithm = algorithm;
    key.bytes_per_element = graph.layer.bytes_per_element;
    return TaskCost{key, bytes};
  }

  std::optional<TaskCost> operator()(const CollectiveOp& op) const {
    if (op.collective != Collective::kAllToAllAllGather)
      return Charge(op.collective, op.algorithm, op.group, task.size);
    const int tensor_ranks = graph.layout.tensor_parallel;
    if (tensor_ranks == 1) return Charge(Collective::kAllToAll, op.algorithm, Group::kExpertShard, task.size);
    if (GroupSize(Group::kExpertShard, graph.layout) == 1) {
      return Charge(Collective::kAllGather, op.algorithm, Group::kTensor, task.size * tensor_ranks);
    }
    return Charge(op.collective, op.algorithm, Group::kExpertShard, task.size);
  }
  std::optional<TaskCost> operator()(const GateOp&) const { return Charge(Kernel::kGate); }
  std::optional<TaskCost> operator()(const DispatchOp&) const { return Charge(Kernel::kPermute); }
  std::optional<TaskCost> operator()(const CombineOp&) const { return Charge(Kernel::kPermute); }
  std::optional<TaskCost> operator()(const ReduceOp&) const { return Charge(Kernel::kPermute); }
  std::optional<TaskCost> operator()(const CopyOp&) const { return Charge(Kernel::kDeviceCopy); }
  std::optional<TaskCost> operator()(const ExpertOp&) const { return Charge(Kernel::kExpertGemm); }
  std::optional<TaskCost> operator()(const AssignSlotsOp&) const { return std::nullopt; }
  std::optional<TaskCost> operator()(const SliceOp&) const { return std::nullopt; }
};

}  // namespace

std::optional<TaskCost> CostOf(const Task& task, const TaskGraph& graph) {
  if (task.size <= 0) return std::nullopt;
  return std::visit(CostOfOp{task, graph}, task.op);
}

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
  const Ancestors ancestors(graph);
  std::vector<TaskId> costly;
  for (TaskId task = 0; task < static_cast<TaskId>(graph.tasks.size()); ++task) {
    if (CostOf(graph.tasks[task], graph)) costly.push_back(task);
  }
  std::vector<ContentionSet> beside(graph.tasks.size());
  for (size_t j = 0; j < costly.size(); ++j) {
    for (size_t i = 0; i < j; ++i) {
      if (ancestors.Precedes(costly[i], costly[j])) continue;
      beside[costly[i]].set(static_cast<int>(Imposed(graph.tasks[costly[j]])));
      beside[costly[j]].set(static_cast<int>(Imposed(graph.tasks[costly[i]])));
    }
  }
  for (ContentionSet& set : beside) set.reset(static_cast<int>(Contention::kNone));
  return beside;
}

}  // namespace moeplan
