// Which weight gradient (dW) runs beside which all-to-all of the backward pass (Lancet §4).
//
// A dW may run beside an all-to-all if neither needs the other, directly or not. The paper maximises
//     sum over all-to-alls a of min(t_a, sum of t_w over the w assigned to a),
// each w assigned at most once: NP-hard. Its best-fit greedy answers first, then a search improves it, and a bound says
// how far it may still be from the optimum. Seconds. Pure functions.
#pragma once

#include <span>
#include <stop_token>
#include <vector>

#include "models/plan/plan.h"
#include "planner/lancet/launch_order.h"
#include "planner/lancet/timed_graph.h"

namespace moeplan::planner {

struct OverlapProblem {
  std::vector<int> exchanges;  // Backward all-to-alls, in the given order.
  std::vector<int> gradients;  // dWs that fit somewhere, in the given order. Of no time: they still wait.
  std::vector<double> exchange_s;
  std::vector<double> gradient_s;
  std::vector<std::vector<int>> fits;  // Of each gradient: places in `exchanges`, ascending, at least one.
};

// Of each gradient its place in `exchanges`, or kUnassigned.
using OverlapChoice = std::vector<int>;
inline constexpr int kUnassigned = -1;

// The choice as places of instructions, by gradient; what is unassigned stays where it is.
std::vector<GradientPlace> PlacesOf(const OverlapProblem& problem, std::span<const int> choice);

// Algorithm 1, lines 1 to 9. When cancelled, of the all-to-alls that were looked at by then.
OverlapProblem LabelWeightGradients(const TimedGraph& graph, const std::stop_token& cancelled = {});

// The sum above.
double OverlapS(const OverlapProblem& problem, std::span<const int> choice);

// Algorithm 1, lines 12 to 23; the earlier one of equally good gradients. When cancelled, what it has assigned by then.
OverlapChoice BestFitGreedy(const OverlapProblem& problem, const std::stop_token& cancelled = {});

// No choice overlaps more: the smallest cut that is tried between gradients and all-to-alls. The minimum cut where the
// sets of gradients that fit are nested, as they are in a backward pass, and for up to 12 all-to-alls. When cancelled,
// the smallest of the cuts that were tried, which is a bound too.
double OverlapBoundS(const OverlapProblem& problem, const std::stop_token& cancelled = {});

struct OverlapOutcome {
  StopReason stop_reason = StopReason::kNotSearched;  // Proved best or out of budget.
  OverlapChoice choice;                               // Never overlaps less than the one given.
  double overlap_s = 0;
  double bound_s = 0;  // No choice overlaps more; proved best: overlap_s.
  int nodes = 0;
};

// Moves and swaps, then branch and bound. Deterministic; proved best is so up to 1e-12 of it. A cancellation counts as
// a spent budget.
OverlapOutcome ImproveOverlap(const OverlapProblem& problem, const OverlapChoice& known, int budget_nodes,
                              const std::stop_token& cancelled = {});

}  // namespace moeplan::planner
