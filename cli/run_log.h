// Keeps plans and what was measured of them in a database.
#pragma once

#include "db/store.h"
#include "models/plan/plan.h"
#include "models/status.h"
#include "moeplan/v1/report.pb.h"

namespace moeplan::cli {

// The plan that runs will be of. A plan that a profile of a database gave goes into that database alone.
StatusOr<PlanId> SavePlan(Store& store, const PlanAnswer& answer);

// The report as compact JSON.
Status SaveRun(Store& store, PlanId plan, const v1::RunReport& report);
// A run of each candidate, with the candidate as compact JSON for a report.
Status SaveRuns(Store& store, PlanId plan, const v1::ValidatedWorkload& workload);

}  // namespace moeplan::cli
