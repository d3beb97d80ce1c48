// The launch order of a schedule's tasks that lets the last end earliest.
//
// Schedules are built in an order that is known to be good, such as OptSche's; codecs that differ by direction, uneven
// stages or contention can make another one better (design.md §4). Seconds. Pure functions.
#pragma once

#include <span>
#include <vector>

#include "models/schedule/task_graph.h"
#include "models/timeline/price.h"
#include "models/timeline/timeline.h"
#include "planner/stop_signals.h"

namespace moeplan::planner {

// No launch order of the graph ends earlier under these prices: the longest path, and what the streams' work leaves of
// overlap (planner/search/overlap_floor.h).
double TaskOrderFloorS(const TaskGraph& graph, std::span<const TaskPrice> prices);

struct TaskOrderOutcome {
  std::vector<TaskId> order;  // Empty: the graph's own.
  double time_s = 0;          // Of Play in that order.
  double time_floor_s = 0;    // No order ends earlier; below time_s: not proved best.
  int nodes = 0;
};

// Branch and bound over all launch orders of forward tasks before backward ones (planner/search/stage_order.h), with
// the tasks' times alone and again with what contention made of them; the better of both and of the graph's own order
// by Play. Without contention the answer is exact unless the nodes run out. Chunks count as alike where their tasks
// take the same time and depend on the same; a graph of more kinds of tasks than kMostOrderedStages keeps its order,
// and its floor is all that is answered. Requires prices of the graph under `index` that miss nothing, `played` =
// Play(graph, prices), at least one node. A stop counts as a spent budget.
TaskOrderOutcome SearchTaskOrder(const TaskGraph& graph, std::span<const TaskPrice> prices, const PlayedGraph& played,
                                 CostIndex& index, int budget_nodes, const StopSignals& stop = {});

}  // namespace moeplan::planner
