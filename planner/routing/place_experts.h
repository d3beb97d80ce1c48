// Which EP rank holds which expert, so that the busiest rank has as little to do as possible.
//
// Every rank holds as many experts. That is multi-way number partitioning with equal cardinalities, NP-hard: exact by
// branch and bound where that ends within the budget, else the longest-processing-time rule (Graham 1969) improved by
// swaps, with a bound. Never worse than the experts in their order. Pure, and deterministic: budgets count steps.
#pragma once

#include <span>
#include <vector>

#include "planner/stop_signals.h"

namespace moeplan::planner {

struct Placement {
  std::vector<int> physical_to_logical;  // Experts in the order in which ranks hold them, ascending on each rank.
  double busiest_load = 0;
  double busiest_load_floor = 0;  // No placement has less; equal to busiest_load: proved best.
};

inline constexpr int kPlacementNodes = 1 << 18;

// `loads` by expert, finite and at least 0. A stop counts as a spent budget. Requires ranks >= 1 to divide their
// number.
Placement PlaceExperts(std::span<const double> loads, int ranks, int budget_nodes = kPlacementNodes,
                       const StopSignals& stop = {});

// How many copies each expert has when `extra` copies are added to one of each, so that the busiest copy, where copies
// share their expert's load evenly, has as little to do as possible; ties go to the lower expert. Giving one more copy
// to the busiest again and again is exact. At most `most` copies of one expert.
// Requires extra <= (most - 1)·experts.
std::vector<int> CopiesOfExperts(std::span<const double> loads, int extra, int most);

}  // namespace moeplan::planner
