// Ranks the layouts of a model over a number of GPUs by the predicted time of a training step.
//
// Every point of planner/layout/layout_space.h is looked at. Points whose weights, states and kept activations do not
// fit go first (rank_memory.h). The rest have a bound on their step (LeastStepS), in the order of which they are
// planned and priced, until all bounds exceed the last layout to be answered. So the answer is that of pricing
// everything. MoE layers that are the same question are planned once, as a row of the answer can say it (PlanMoe).
#pragma once

#include <stop_token>

#include "models/cost/profile.h"
#include "models/layout/layout_answer.h"
#include "models/status.h"

namespace moeplan::planner {

struct LayoutOptions {
  int threads = 1;    // That plan MoE layers. Changes nothing of the answer.
  bool prune = true;  // False: price everything, for tests of the bounds.
  std::stop_token cancelled;
};

// Best first, each layout with its best micro-batch, once for each orientation that its contexts may have; ties go to
// smaller degrees, TP before CP, PP, ESP and EP, then to the orientation of MoNTA's rule. A layout takes the best MoE
// schedule that leaves room for the rest. Warnings name what the listed layouts have extrapolated.
//
// kInvalidInput: the request is wrong, no layout divides the model's and the cluster's numbers, or none of those that
// fit could be priced (the message names what the profile lacks). kUnimplemented: a model with an encoder. kCancelled.
// Requires a validated profile. The same arguments give the same answer.
StatusOr<LayoutAnswer> RankLayouts(const LayoutRequest& request, const Profile& profile,
                                   const LayoutOptions& options = {});

}  // namespace moeplan::planner
