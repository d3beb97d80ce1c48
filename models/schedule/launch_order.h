// In which order the tasks of a graph are launched, where that is not the order its schedule was written in.
//
// Each stream runs its tasks in launch order, so the order decides which task waits for which. Any order in which tasks
// come after what they depend on computes the same layer: buffers are written once. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/schedule/knobs.h"
#include "models/schedule/task_graph.h"
#include "models/status.h"
#include "models/workload/workload.h"

namespace moeplan {

// The graph with its tasks in that order. Requires every task once, after those it depends on, and forward tasks before
// backward ones.
TaskGraph Relaunched(TaskGraph graph, std::span<const TaskId> order);

// The graph with the tasks of `phase` in the order of their names; forward tasks go before backward ones all the same.
// kInvalidInput: a name is unknown, missing, there twice, or before one that its task depends on.
StatusOr<TaskGraph> LaunchedBy(TaskGraph graph, Phase phase, std::span<const std::string> names);

// The graph that a plan stands for: the schedule of its knobs, launched in its order where `order` is not empty.
// `workload` must be resolved against `cluster`. Errors of BuildSchedule and LaunchedBy.
StatusOr<TaskGraph> BuildPlanned(const Knobs& knobs, std::span<const std::string> order, const Workload& workload,
                                 const Cluster& cluster);

}  // namespace moeplan
