// The search for launch orders among the candidates of a layer: which candidates are worth the nodes, and what floor is
// left under all of them.
#pragma once

#include <vector>

#include "models/timeline/cost_index.h"
#include "planner/search/candidate.h"
#include "planner/search/stop_watch.h"

namespace moeplan::planner {

struct LaunchOrders {
  double fastest_s = 0;     // Of all candidates of the search, after the orders that were found.
  double time_floor_s = 0;  // No candidate ends earlier in any launch order. Infinity where there are no candidates.
};

// Relaunches candidates in place, each in an order that is faster than its own by more than measurements can tell.
// Visits at most `nodes` states of orders: half of them for a first look at each candidate that another order could
// make the fastest of all, the rest for the most promising. `fastest_s` is the least time known before. Stopped, it
// leaves the candidates as they are by then, and the floor holds.
LaunchOrders SearchLaunchOrders(const std::vector<Candidate*>& candidates, double fastest_s, int nodes,
                                CostIndex& index, StopWatch& watch);

}  // namespace moeplan::planner
