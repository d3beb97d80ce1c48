// Draws and prices the graphs of one search, and remembers what they asked of the profile and of the device.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "models/measurement/cost_key.h"
#include "models/schedule/task_graph.h"
#include "models/status.h"
#include "models/timeline/price.h"
#include "planner/search/drawing.h"
#include "planner/search/tried.h"

namespace moeplan::planner {

struct PricedGraph {
  const TaskGraph& graph;  // Valid until the next graph is priced.
  GraphPrices prices;
  double memory_bytes = 0;
};

// Not thread-safe. Workload, which is resolved, and index are borrowed.
class GraphPricing {
 public:
  GraphPricing(const Workload& workload, CostIndex& index)
      : workload_(workload), cluster_(index.profile().cluster), drawing_(workload, index) {}

  // The graph of knobs of tried.variant. Absent: it does not fit the device; `tried` is told what it needs.
  // kNotFound: the profile lacks costs; else the errors of ScheduleAllowed.
  StatusOr<std::optional<PricedGraph>> Price(const Knobs& knobs, Tried& tried);

  double least_unfit_bytes() const { return least_unfit_bytes_; }  // Infinity where every graph fits.
  // Costs that the profile lacks, of graphs that fit and of the first of each variant that does not.
  const std::set<CostKey>& missing() const { return missing_; }

 private:
  bool Fits(double bytes) const;
  void NoteMissing(const GraphPrices& prices);

  const Workload& workload_;
  const Cluster& cluster_;
  Drawing drawing_;
  double least_unfit_bytes_ = kNever;
  std::set<CostKey> missing_;
};

}  // namespace moeplan::planner
