#include "planner/search/price_plan.h"

#include <utility>

#include "models/measurement/cost_key.h"
#include "models/schedule/gradient_slices.h"

namespace moeplan {

StatusOr<Candidate> PricePlan(const Plan& plan, const Workload& resolved, const Profile& profile) {
  ASSIGN_OR_RETURN(TaskGraph whole, BuildPlan(plan, resolved, profile.cluster));
  TaskGraph graph = PartOf(std::move(whole), resolved.phase);
  GraphPrices prices = PriceGraph(graph, profile);
  if (!prices.missing.empty()) return NotFound(MissingReason(prices.missing, resolved.layout));
  return MakeCandidate(plan.knobs, std::move(graph), std::move(prices), /*memory_bytes=*/0);
}

}  // namespace moeplan
