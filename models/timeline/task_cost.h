// What a task of a graph costs, as a key and a size to look up, and what it may run beside.
//
// The one place that says which operation is charged as what, shared by whoever prices a graph (models/timeline/price)
// and whoever decides what to measure (models/measurement/needs).
#pragma once

#include <bitset>
#include <optional>
#include <vector>

#include "models/cost/operation.h"
#include "models/schedule/task_graph.h"

namespace moeplan {

struct TaskCost {
  CostKey key;      // Uncontended, with every optional field of the layer; a collective's with the graph's CTAs.
  double size = 0;  // Bytes, or flops of an EXPERT_GEMM. Above 0.

  friend bool operator==(const TaskCost&, const TaskCost&) = default;
};

// Absent: the task is free (size 0, a group of one rank, slot bookkeeping).
//   collectives        their own key; an SAA without tensor parallelism is the all-to-all alone, one over EP&ESP of a
//                      single rank the all-gather of its payload times N_MP
//   GateOp             GATE
//   DispatchOp, CombineOp, ReduceOp  PERMUTE
//   CopyOp             DEVICE_COPY
//   ExpertOp, SharedExpertOp  EXPERT_GEMM, each of its own hidden dimension
std::optional<TaskCost> CostOf(const Task& task, const TaskGraph& graph);
// The same for a task of that size.
std::optional<TaskCost> CostOf(const Task& task, double size, const TaskGraph& graph);

inline constexpr int kContentions = 5;
using ContentionSet = std::bitset<kContentions>;

// What `task` is to whoever runs beside it: an all-to-all; an all-gather (also reduce-scatter and all-reduce); a copy;
// compute of any kind, which is measured as an expert GEMM. kNone for a task that does nothing.
Contention Imposed(const Task& task);

// For each task, what could run beside it: of all tasks that cost something, those that neither dependencies nor
// stream order put before or after it.
std::vector<ContentionSet> PossibleContention(const TaskGraph& graph);
// The same where it is known which tasks cost something.
std::vector<ContentionSet> PossibleContention(const TaskGraph& graph, const std::vector<bool>& costs);

}  // namespace moeplan
