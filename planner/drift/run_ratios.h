// A measured run of a plan beside what a profile predicts, cost by cost.
#pragma once

#include <span>
#include <vector>

#include "models/cost/profile.h"
#include "models/plan/plan.h"
#include "models/status.h"
#include "models/workload/workload.h"

namespace moeplan::planner {

struct CostRatio {
  CostKey key;           // Of the profile's entry that answers for the cost.
  double log_ratio = 0;  // log(measured / predicted), of the time of all tasks of that cost together.

  friend bool operator==(const CostRatio&, const CostRatio&) = default;
};

struct RunRatios {
  double predicted_s = 0;         // Of the whole layer, under the profile.
  double measured_s = 0;          // From the first start to the last end of a rank, that of the slowest rank.
  std::vector<CostRatio> ratios;  // Each entry once, in the order in which the graph first asks for them.
};

// Tasks are told by their names. A collective takes what the rank took that was in it for the shortest time: the others
// waited for that one. Other tasks take the median over ranks. What a task is expected to take counts what runs beside
// it. Costs without a task that was measured are left out, as are tasks that cost nothing. For what the profile lacks
// others stand in where they can (FillIn in planner/search/price_plan.h); it has no ratio.
//
// Requires a resolved workload. kInvalidInput names a task that the plan does not have, as "ranks[0].timeline[3]", or
// says that nothing was measured; other errors are those of PricePlan.
StatusOr<RunRatios> CompareRun(const Plan& plan, const Workload& resolved, const Profile& profile,
                               std::span<const Timeline> ranks);

}  // namespace moeplan::planner
