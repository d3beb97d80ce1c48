// What contention leaves of overlap: a floor under the time of a graph whose streams slow each other down.
#pragma once

#include <span>

#include "models/schedule/task_graph.h"
#include "models/timeline/price.h"

namespace moeplan::planner {

// The graph does not end earlier in any launch order: of each two streams, the work of both, less the most that running
// beside each other can save. A task beside any of the other stream progresses at no more than 1/slowdown, the least of
// what that stream's tasks impose on it, so that an hour of overlap saves at most 1/slowdown + 1/slowdown' - 1 hours;
// where that is negative, it saves nothing. At least the work of the busiest stream.
double OverlapFloorS(const TaskGraph& graph, std::span<const TaskPrice> prices);

}  // namespace moeplan::planner
