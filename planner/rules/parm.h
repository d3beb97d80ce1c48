// Parm's Algorithm 1: which of the dedicated schedules S1 and S2 communicates less, and what the baseline would take.
//
// Communication only, as the paper counts it, over DIRECT collectives. The printed algorithm has slips; design.md §4
// and the source say how each is settled.
#pragma once

#include "models/cost/profile.h"
#include "models/plan/plan.h"
#include "models/status.h"
#include "models/timeline/pricer.h"
#include "models/workload/workload.h"
#include "planner/rules/explained_rule.h"

namespace moeplan::planner {

// kNotFound when the profile lacks a collective that the rule needs: the keys and the command that would measure them.
// Adds to `notes` what had to be extrapolated, and to `explained`, which may be null, definitions and times. Requires a
// workload resolved against profile.cluster.
StatusOr<ParmAnswer> ParmRule(const Workload& workload, const Profile& profile, PriceNotes& notes,
                              ExplainedRule* explained = nullptr);

}  // namespace moeplan::planner
