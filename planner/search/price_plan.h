// What a plan that somebody has costs under a profile, whichever it was made with.
#pragma once

#include "models/cost/profile.h"
#include "models/plan/plan.h"
#include "models/status.h"
#include "models/workload/workload.h"
#include "planner/search/candidate.h"

namespace moeplan {

// The plan's graph (its knobs, its order, its slices of gradients), priced and played; without its interval and memory.
// Requires a workload resolved against profile.cluster and a validated profile. kInvalidInput or kInfeasible: the plan
// is none of that workload. kNotFound: the profile lacks a cost (the message names the key and how to measure it).
StatusOr<Candidate> PricePlan(const Plan& plan, const Workload& resolved, const Profile& profile);

}  // namespace moeplan
