// A training step with its ranges cut and its weight gradients placed: the schedule that ends first of those tried.
//
// The passes of the paper choose by sums (planner/lancet/cut_ranges.h, weight_gradients.h); what counts is the end of
// the two-stream timeline of the whole launch order. So their choices, and none at all, are compared by that, and
// where a graph is small, all choices are. Never later than the given order.
#pragma once

#include <stop_token>
#include <vector>

#include "planner/lancet/cut_ranges.h"
#include "planner/lancet/launch_order.h"
#include "planner/lancet/weight_gradients.h"

namespace moeplan::planner {

// What each search may spend. The defaults leave a training step of 24 layers below 50 ms, with the paper's groups and
// without any (tests/bench/lancet_bench.cc).
struct LancetBudget {
  double range_launches = 2e7;    // Launches played to choose ranges by their sums.
  double refined_launches = 2e7;  // The same, to compare choices by the whole timeline; twice.
  int overlap_nodes = 20000;      // Of the assignment of weight gradients.
};

struct LancetSchedule {
  Cuts ranges;                        // In the given order.
  std::vector<GradientPlace> places;  // By gradient.
  std::vector<PartLaunch> order;
  double time_s = 0;
  double unscheduled_s = 0;

  OverlapProblem problem;  // What the weight gradients were chosen from,
  OverlapOutcome overlap;  // what was found by the paper's sum,
  double greedy_s = 0;     // and what its greedy finds.
  bool all_ranges = true;  // False: the budget was spent before the longest ranges were tried.
};

// Deterministic. When cancelled, the best of what was tried.
LancetSchedule ChooseSchedule(const TimedGraph& graph, const LancetBudget& budget = {}, std::stop_token cancelled = {});

}  // namespace moeplan::planner
