// A training step with its ranges cut and its weight gradients placed: the schedule that ends first of those tried.
//
// The passes choose by sums (planner/lancet/cut_ranges.h, weight_gradients.h), as the paper's do (paper_plan.h); what
// counts is the end of the two-stream timeline of the whole launch order. So every pair of what passes offer, ours, the
// paper's and nothing at all, is compared by that, and where a graph is small, all choices are. The schedule is never
// later than the given order, than the paper's plan, or than what the same search finds with one pass alone.
#pragma once

#include <stop_token>
#include <vector>

#include "planner/lancet/cut_ranges.h"
#include "planner/lancet/launch_order.h"
#include "planner/lancet/paper_plan.h"
#include "planner/lancet/weight_gradients.h"

namespace moeplan::planner {

// What each search may spend. The defaults leave a training step of 24 layers below 50 ms, with the paper's groups and
// without any (tests/bench/lancet_bench.cc).
struct LancetBudget {
  double range_launches = 2e7;    // Launches played to choose ranges by their sums; under the paper's limits as many.
  double refined_launches = 2e7;  // The same, to compare choices by the whole timeline: half of it for both passes
                                  // together, a quarter for each alone; once for ranges and once for places.
  int overlap_nodes = 20000;      // Of the assignment of weight gradients.
};

struct LancetOptions {
  LancetPasses passes;
  LancetBudget budget;
};

// What the search chose from in the end.
struct LancetCandidate {
  Cuts ranges;                        // In the given order.
  std::vector<GradientPlace> places;  // By gradient.
  double time_s = 0;                  // The end of its timeline (planner/lancet/timeline.h).
};
inline constexpr size_t kMostCandidates = 16;

struct LancetSchedule {
  Cuts ranges;                        // In the given order.
  std::vector<GradientPlace> places;  // By gradient.
  std::vector<PartLaunch> order;
  double time_s = 0;
  double unscheduled_s = 0;

  // Up to kMostCandidates that differ, for whoever judges them by more than two streams: the one above first, then
  // those that end earlier than the given order, earliest first, and the given order last.
  std::vector<LancetCandidate> candidates;

  OverlapProblem problem;  // What the weight gradients were chosen from (empty where that pass is off),
  OverlapOutcome overlap;  // what was found by the paper's sum,
  double greedy_s = 0;     // and what its greedy finds.
  bool all_ranges = true;  // False: the budget was spent before the longest ranges were tried.
};

// Deterministic. When cancelled, the best of what was tried.
LancetSchedule ChooseSchedule(const TimedGraph& graph, const LancetOptions& options = {},
                              std::stop_token cancelled = {});

}  // namespace moeplan::planner
