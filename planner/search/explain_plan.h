// Where the time of a plan comes from: the entry of the profile behind each task, and the chain that decides the end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/cost/profile.h"
#include "models/plan/plan.h"
#include "models/status.h"
#include "models/timeline/critical_path.h"
#include "models/workload/workload.h"
#include "planner/stop_signals.h"

namespace moeplan::planner {

struct ExplainedTask {
  std::optional<CostKey> cost;  // The entry that answers or stands in; absent: the task is free, or there is none.
  bool foretold = false;        // Its own cost is not in the profile: `cost` stands in, else links predict it.
  double size = 0;              // Bytes or flops; 0: free.
  double alone_s = 0;           // When nothing runs beside it.
  TaskId released_by = kNoTask;
  bool critical = false;
};

struct ExplainedPlan {
  Plan plan;                         // As priced, with its interval; memory_bytes and gradients as given.
  std::vector<ExplainedTask> tasks;  // In the timeline's order.
  std::vector<std::string> warnings;
};

// Others stand in for costs that the profile lacks (FillIn in price_plan.h), where they can. Stopped, its interval
// leaves out what was left to work out. Requirements and errors are those of PricePlan (planner/search/price_plan.h).
StatusOr<ExplainedPlan> ExplainPlan(const Plan& plan, const Workload& resolved, const Profile& profile,
                                    const StopSignals& stop = {});

struct KeyTime {
  CostKey key;
  double time_s = 0;  // Of all tasks of the plan that ask for it.
};
// What the plan's tasks ask for, each key once. Requires the plan's own timeline; errors are those of PricePlan.
StatusOr<std::vector<KeyTime>> TimesByKey(const Plan& plan, const Workload& resolved, const Cluster& cluster);
// The entries of the profile that answer or stand in (StandInOf), each once, that with most time first; equal ones as
// they come. What links predict has none.
std::vector<CostKey> DearestEntries(const std::vector<KeyTime>& times, const Profile& profile);

}  // namespace moeplan::planner
