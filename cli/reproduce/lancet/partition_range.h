// How the forward pass depends on how far ranges reach around a layer of experts (Lancet, Figure 6).
//
// Ranges are not chosen here but given: from each layer's first all-to-all so much computation before it, and as much
// behind its second one, all in the same number of parts, the best of 2 to the graph's most. Played as
// planner/lancet/judge.h does. Seconds. Pure functions.
#pragma once

#include <vector>

#include "models/cost/profile.h"
#include "models/status.h"
#include "models/training/training_graph.h"

namespace moeplan::cli {

struct ReachedForward {
  double reach = 0;      // Of half the computation from one layer of experts to the next: 0 to 1.
  double forward_s = 0;  // When the forward pass ends.
  int parts = 1;         // 1: no part of it ends earlier.
};

// The forward pass uncut.
StatusOr<double> UncutForwardS(const TrainingGraph& graph, const Profile& profile);

// One for each reach: a range that cannot be cut so far (planner/lancet/axes.h) is cut as far as it can. Reach 0 is
// all-to-alls and experts alone.
StatusOr<std::vector<ReachedForward>> ForwardByReach(const TrainingGraph& graph, const Profile& profile,
                                                     const std::vector<double>& reaches);

}  // namespace moeplan::cli
