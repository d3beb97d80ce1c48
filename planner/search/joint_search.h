// The candidates of a layer: which are tried, what they cost, and a floor under what was left out. What space is
// searched, and what is promised of it, is PlanLayer's to say (planner/search/plan_layer.h).
//
// One search goes through its steps in order, each in a file of its own: variants (variants.h) are priced in equal
// pieces (graph_pricing.h), what cannot be priced or does not fit is refused (refusals.h), the fastest are cut in
// unequal chunks (unequal_candidates.h), and launch orders are searched (launch_orders.h).
#pragma once

#include <vector>

#include "models/cost/profile.h"
#include "models/plan/plan.h"
#include "models/workload/workload.h"
#include "planner/search/candidate.h"
#include "planner/search/plan_layer.h"

namespace moeplan::planner {

struct FoundCandidates {
  std::vector<Candidate> listed;
  std::vector<Skipped> skipped;  // In the order of Families().
  SearchOutcome outcome;
  double fastest_s = 0;          // Infinity when nothing was priced.
  double least_unfit_bytes = 0;  // Infinity when everything fits.
  std::vector<CostKey> missing;  // Costs, of what fits and of what does not.
  int ruled_out = 0;             // Variants with codecs that a bound puts behind the fastest.
};

// Requires a resolved workload and a validated profile of its cluster. Of `options` it reads which families and pieces
// to try.
FoundCandidates SearchCandidates(const Workload& workload, const Profile& profile, const PlanOptions& options,
                                 const PlanBudget& budget);

}  // namespace moeplan::planner
