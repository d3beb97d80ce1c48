// The plan of the paper's own algorithm: best-fit greedy for weight gradients (Lancet §4.2, Algorithm 1), the dynamic
// program for ranges (§5.1) under the limits of its evaluation (§7).
//
// It is one of the plans that ChooseSchedule (planner/lancet/schedule.h) compares, and what our own is compared with.
// The paper judges neither pass by the timeline of the whole step, so its plan may end later than the given order.
// Seconds. Pure functions.
#pragma once

#include <stop_token>
#include <vector>

#include "planner/lancet/cut_ranges.h"
#include "planner/lancet/launch_order.h"
#include "planner/lancet/timed_graph.h"
#include "planner/lancet/weight_gradients.h"

namespace moeplan::planner {

// Which of the two passes run.
struct LancetPasses {
  bool weight_gradients = true;  // Weight gradients move beside backward all-to-alls.
  bool partition = true;         // Ranges of the forward pass are cut and pipelined.
};

// What makes the dynamic program shorter, and its choice smaller.
struct RangeLimits {
  double group_s = 0;      // γ: neighbours are merged until their times add up to this; 0: each is by itself.
  double max_range_s = 0;  // ι: the most that the uncut times of a range add up to; 0: no limit.
};

// The limits of the paper's evaluation: five groups from one MoE layer to the next, ranges as long as one such stretch,
// which is the time of the forward pass over its layers of experts. Requires moe_layers >= 1.
RangeLimits LimitsOfPaper(double forward_s, int moe_layers);

// The graph with the limits of the paper's evaluation; those that it states already stay. Two forward all-to-alls are
// counted as one layer of experts.
TimedGraph WithLimitsOfPaper(TimedGraph graph);

struct PaperPlan {
  Cuts ranges;                        // In the given order.
  std::vector<GradientPlace> places;  // By gradient.
  std::vector<PartLaunch> order;
  double time_s = 0;       // The end of the two-stream timeline of `order`.
  bool all_ranges = true;  // False: the budget was spent before the longest ranges were tried.
};

// Weight gradients stay where they are if no order has all of them where the greedy puts them, which the paper does not
// look for. `budget_launches` is that of ChooseRanges. When cancelled, what was chosen by then.
PaperPlan PlanOfPaper(const TimedGraph& graph, const LancetPasses& passes = {}, double budget_launches = 2e7,
                      const std::stop_token& cancelled = {});

}  // namespace moeplan::planner
