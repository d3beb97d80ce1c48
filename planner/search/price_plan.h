// What a plan that somebody has costs under a profile, whichever it was made with, and what a profile lacks of a layer.
#pragma once

#include <optional>

#include "models/cost/profile.h"
#include "models/plan/plan.h"
#include "models/status.h"
#include "models/workload/workload.h"
#include "planner/search/candidate.h"

namespace moeplan {
class CostIndex;
class LinkModel;
}  // namespace moeplan

namespace moeplan::planner {

// Whether the layer asks for costs that the profile lacks and that others can stand in for: for collectives
// (LayerCollectives) what the links say, for the experts' products those of the nearest dimensions that were measured
// (models/cost/nearest_gemm.h), with what slows them.
bool NeedsStandIns(const LinkModel& links, const Workload& resolved, const Profile& profile);
// Adds them; each cost is noted.
void FillIn(const LinkModel& links, const Workload& resolved, Profile& profile, PriceNotes& notes);
// The measured entry whose times FillIn gives to a product that the profile of `measured` lacks; absent: links predict
// the cost, or nothing does.
std::optional<CostKey> StandInOf(const CostKey& key, CostIndex& measured);

// The plan's graph (its knobs, its order, its slices of gradients), priced and played; without its interval and memory.
// Requires a workload resolved against profile.cluster and a validated profile. kInvalidInput or kInfeasible: the plan
// is none of that workload. kNotFound: the profile lacks a cost (the message names the key and how to measure it).
StatusOr<Candidate> PricePlan(const Plan& plan, const Workload& resolved, const Profile& profile);
// The same after FillIn, where the profile lacks a cost; the notes of the prices then name what of it the plan asks
// for.
StatusOr<Candidate> PriceFilledIn(const Plan& plan, const Workload& resolved, const Profile& profile);

}  // namespace moeplan::planner
