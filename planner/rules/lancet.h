// Lancet: where the weight gradients and the cuts of a training graph go, so that all-to-alls are hidden.
//
// Pass one places weight gradients beside backward all-to-alls (Lancet §4, planner/lancet/weight_gradients.h), pass two
// cuts ranges of the forward pass and pipelines them (§5, planner/lancet/cut_ranges.h). What they choose is judged on
// the timeline of the whole step, with contention and the boundaries of cuts (planner/lancet/judge.h), beside the given
// order and the paper's own plan (planner/lancet/paper_plan.h), so that the plan is never slower than either. Where the
// graph has measured steps, parts take what they took there (planner/lancet/parts_as_run.h).
#pragma once

#include <stop_token>

#include "models/cost/profile.h"
#include "models/plan/plan.h"
#include "models/status.h"
#include "models/training/training_graph.h"
#include "planner/lancet/schedule.h"
#include "planner/lancet/timed_graph.h"

namespace moeplan::planner {

// `profile` may be null where every time is in the graph (NeedsProfile). The explanation says what was gained, what the
// weight gradients cover, what greedy would, and the bound that no assignment passes. With both passes switched off it
// is the given order.
// kInvalidInput: the graph is wrong, or a time is missing. kNotFound: the profile lacks an all-to-all of the graph.
// kCancelled. Pure: the same arguments give the same answer, unless cancelled.
StatusOr<GraphPlanAnswer> PlanGraph(const TrainingGraph& graph, const Profile* profile,
                                    const LancetOptions& options = {}, std::stop_token cancelled = {});

}  // namespace moeplan::planner
