// From a task graph and a profile to the time of each task: what a timeline (models/timeline/timeline.h) is made of.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "models/cost/profile.h"
#include "models/schedule/task_graph.h"
#include "models/timeline/pricer.h"
#include "models/timeline/task_cost.h"

namespace moeplan {

struct TaskPrice {
  double time_s = 0;  // When nothing runs beside it.
  double low_s = 0;   // 90 % interval.
  double high_s = 0;
  int key = -1;                            // Into GraphPrices::keys; -1: free.
  Contention imposes = Contention::kNone;  // What it is to tasks beside it.
  // By Contention: how many times longer it takes beside one such task. At least 1.
  std::array<double, kContentions> slowdown = {1, 1, 1, 1, 1};
  std::array<double, kContentions> slowdown_low = {1, 1, 1, 1, 1};  // 90 % interval.
  std::array<double, kContentions> slowdown_high = {1, 1, 1, 1, 1};
  // The share of the rate of a rank's links between nodes that a collective takes while nothing runs beside it, 0 to 1.
  double network_share = 0;

  friend bool operator==(const TaskPrice&, const TaskPrice&) = default;
};

struct GraphPrices {
  std::vector<TaskPrice> tasks;  // In graph order.
  std::vector<CostKey> keys;     // Essential, each once, in order of first use.
  std::vector<CostKey> missing;  // Not empty: the graph has no price, and the tasks that need these keys stand at 0.
  PriceNotes notes;
};

// What could run beside each task; none where no contention was measured, because it does not matter there. Graphs that
// differ in how exchanges are carried alone (models/schedule/carry.h) have the same.
std::vector<ContentionSet> MeasuredContention(const TaskGraph& graph, CostIndex& index);

// Prices the tasks of one graph at any sizes. The chunks of a schedule ask for the same cost over and over, so each is
// looked up once. Graph and index are borrowed and must outlive it; `beside` is MeasuredContention of the graph.
class GraphPricer {
 public:
  GraphPricer(const TaskGraph& graph, CostIndex& index, std::vector<ContentionSet> beside);

  TaskPrice Price(TaskId task, double size);
  double TimeAloneS(TaskId task, double size);

  const std::vector<CostKey>& keys() const { return keys_; }
  const Pricer& pricer() const { return pricer_; }

 private:
  struct KnownPrice {
    TaskCost cost;
    ContentionSet beside;
    TaskPrice price;
  };
  TaskPrice PriceOf(const TaskCost& cost, const ContentionSet& beside);
  TaskPrice LookUp(const TaskCost& cost, const ContentionSet& beside);
  int IndexOf(const CostKey& key);

  const TaskGraph& graph_;
  const std::vector<std::optional<TaskCost>> costs_;  // Of the graph's own sizes.
  const std::vector<ContentionSet> beside_;
  Pricer pricer_;
  std::vector<CostKey> keys_;
  std::vector<KnownPrice> known_;
};

// Prices every task (task_cost.h says as what). Missing collectives and EXPERT_GEMM make the graph unpriceable; other
// missing kernels cost 0 and are noted, as is every size outside the measured range.
// The slowdown of a task beside another is the ratio of the contended to the uncontended model at the task's size; only
// contention that the graph's order permits is looked up.
GraphPrices PriceGraph(const TaskGraph& graph, const Profile& profile);
// The same for one of many graphs.
GraphPrices PriceGraph(const TaskGraph& graph, CostIndex& index);
GraphPrices PriceGraph(const TaskGraph& graph, CostIndex& index, std::vector<ContentionSet> beside);

// What the tasks of a graph cost that are not free, and on which stream: all that bounds of its work need.
struct StreamCost {
  TaskCost cost;
  StreamKind stream = StreamKind::kCompute;
};
std::vector<StreamCost> StreamCosts(const TaskGraph& graph);

// The work of the busiest stream where each task of a graph of one piece is left whole or cut in `pieces`, whichever
// takes less: the graph of the same schedule in so many pieces does not end earlier. Missing costs count as none.
double WorkInPiecesAtLeastS(const std::vector<StreamCost>& whole, CostIndex& index, int pieces);

// The same for pieces of any sizes that are multiples of 1/units; equal pieces are among them only where `pieces` divides
// `units`. Thirds are no multiples of an eighth, and the graph in thirds can end before the bound of eighths. So this
// rules out unequal pieces alone, and nothing about equal ones follows from it.
double WorkInUnequalPiecesAtLeastS(const std::vector<StreamCost>& whole, CostIndex& index, int pieces, int units);

}  // namespace moeplan
