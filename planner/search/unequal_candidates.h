// The candidates of unequal chunks: which variants are cut unequally, and whether that is worth listing.
#pragma once

#include <deque>
#include <optional>

#include "models/timeline/cost_index.h"
#include "models/workload/workload.h"
#include "planner/search/graph_pricing.h"
#include "planner/search/stop_watch.h"
#include "planner/search/tried.h"

namespace moeplan::planner {

struct UnequalCandidates {
  std::optional<double> fastest_s;  // Of the candidate that was found; absent: none was.
  int priced = 0, too_large = 0;    // Graphs.
};

// Weighs the unequal splits (planner/search/unequal_chunks.h) of each family's variant that is fastest in equal chunks,
// in the order that its schedule is written in. The fastest of all becomes the `unequal` of its variant where it beats
// the fastest candidate of equal chunks by more than measurements can tell. Stopped, it keeps the fastest by then.
UnequalCandidates TryUnequalChunks(std::deque<Tried>& tried, const Workload& workload, CostIndex& index,
                                   GraphPricing& pricing, StopWatch& watch);

}  // namespace moeplan::planner
