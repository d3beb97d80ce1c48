// The task graph that a search prices next, made from the last one where that is enough (models/schedule/carry.h).
#pragma once

#include <optional>
#include <vector>

#include "models/schedule/knobs.h"
#include "models/schedule/task_graph.h"
#include "models/status.h"
#include "models/timeline/price.h"

namespace moeplan::planner {

// Not thread-safe. Workload and index are borrowed and must outlive it.
class Drawing {
 public:
  // The workload is resolved.
  Drawing(const Workload& workload, CostIndex& index) : workload_(workload), index_(index) {}

  // Errors are those of ScheduleAllowed.
  Status Draw(const Knobs& knobs);

  // Of the last Draw, until the next: the whole graph, and its tasks of the workload's phase with their prices.
  const TaskGraph& whole() const { return *whole_; }
  const TaskGraph& priced() const { return pass_ ? *pass_ : *whole_; }
  GraphPrices Prices() const { return PriceGraph(priced(), index_, beside_); }

 private:
  const Workload& workload_;
  CostIndex& index_;
  Knobs drawn_;  // What whole_ was built from.
  std::optional<TaskGraph> whole_, pass_;
  std::vector<ContentionSet> beside_;  // Of the tasks that are priced.
};

}  // namespace moeplan::planner
