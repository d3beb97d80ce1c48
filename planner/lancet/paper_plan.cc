#include "planner/lancet/paper_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace moeplan::planner {
namespace {

constexpr int kGroupsPerStretch = 5;  // Lancet §7.
constexpr int kExchangesPerLayer = 2;

}  // namespace

RangeLimits LimitsOfPaper(double forward_s, int moe_layers) {
  const double stretch_s = forward_s / moe_layers;
  return {.group_s = stretch_s / kGroupsPerStretch, .max_range_s = stretch_s};
}

TimedGraph WithLimitsOfPaper(TimedGraph graph) {
  double forward_s = 0;
  int exchanges = 0;
  for (const TimedInstruction& one : graph.instructions) {
    if (one.phase != Pass::kForward) continue;
    forward_s += one.whole_s();
    exchanges += one.exchanges();
  }
  const int layers = std::max(1, (exchanges + kExchangesPerLayer - 1) / kExchangesPerLayer);
  const RangeLimits limits = LimitsOfPaper(forward_s, layers);
  if (graph.group_s == 0) graph.group_s = limits.group_s;
  if (graph.max_range_s == 0) graph.max_range_s = limits.max_range_s;
  return graph;
}

PaperPlan PlanOfPaper(const TimedGraph& graph, const LancetPasses& passes, double budget_launches,
                      const std::stop_token& cancelled) {
  PaperPlan plan;
  if (passes.partition) {
    CutSearchOutcome cuts = ChooseRanges(WithLimitsOfPaper(graph), budget_launches, cancelled);
    plan.ranges = std::move(cuts.ranges);
    plan.all_ranges = cuts.all_ranges;
  }
  if (passes.weight_gradients) {
    const OverlapProblem problem = LabelWeightGradients(graph, cancelled);
    plan.places = PlacesOf(problem, BestFitGreedy(problem, cancelled));
  }
  std::optional<std::vector<PartLaunch>> order = LaunchOrder(graph, plan.ranges, plan.places);
  if (!order) {
    plan.places.clear();
    order = LaunchOrder(graph, plan.ranges, plan.places);
  }
  if (!order) {  // Ranges whose ways back wait for each other, which the paper has none of.
    plan.ranges.clear();
    order = LaunchOrder(graph, plan.ranges, plan.places);
  }
  plan.order = *std::move(order);
  plan.time_s = EndS(graph, plan.order);
  return plan;
}

}  // namespace moeplan::planner
