// Why a played graph ends when it does.
//
// Pure. In a timeline (models/timeline/timeline.h) every task starts at the end of another, or at the beginning.
#pragma once

#include <vector>

#include "models/schedule/task_graph.h"
#include "models/timeline/timeline.h"

namespace moeplan {

// For each task, the one at whose end it starts: of those that it depends on and the one before it on its stream, the
// last to end, of several the last launched; kNoTask for those that wait for nothing.
std::vector<TaskId> ReleasedBy(const TaskGraph& graph, const PlayedGraph& played);

// The last task to end (of several the last launched), what released it, and so on, from the first to the last.
// Contention apart, their times add up to the end.
std::vector<TaskId> CriticalPath(const std::vector<TaskId>& released_by, const PlayedGraph& played);

}  // namespace moeplan
