// The sizes of chunks that make a schedule end earliest.
//
// A small first chunk lets the experts start early, a small last one leaves little to wait for behind them, and the
// large ones between keep start-up costs down.
#pragma once

#include <functional>
#include <vector>

#include "models/schedule/knobs.h"
#include "models/timeline/cost_index.h"
#include "models/workload/workload.h"

namespace moeplan::planner {

// Weighs every split (UnequalSplits) of the knobs' pieces that the workload allows, in the order the schedule is
// written in, and calls improved(knobs with chunk_shares) for each that ends before `to_beat_s`, which falls as it
// answers: with the time of what it took, or the same where it did not.
// Exact: splits are left out only where their longest path or their overlap (planner/search/overlap_floor.h) is behind.
// Requires a resolved workload; costs are those of `index`. Returns how many splits were priced whole: 0 where a cost
// is missing.
int WeighUnequalChunks(const Knobs& knobs, const Workload& workload, CostIndex& index, double to_beat_s,
                       const std::function<double(const Knobs& improved)>& improved);

}  // namespace moeplan::planner
