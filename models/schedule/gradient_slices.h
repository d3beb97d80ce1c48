// The all-reduce of dense gradients, cut into slices, as tasks of a layer's graph: what FSMoE and FlowMoE run in the
// gaps that a layer's own communication leaves on its stream.
//
// Where the slices go, and how large they are, is decided elsewhere (planner/gradients); here they become tasks
// "dense_gradients.1", "dense_gradients.2" ..., each summing in place a buffer of that name and of as many bytes. They
// read nothing that the layer writes, and nothing of it waits for them but for its place on their stream. Pure.
#pragma once

#include <span>

#include "models/plan/plan.h"
#include "models/schedule/task_graph.h"
#include "models/status.h"

namespace moeplan {

// `graph` with a task for each slice, among its backward tasks. A slice is launched just before its before_task, or
// after everything else, and depends on its after_task; start_s and end_s are not read. Without slices, `graph` as it
// is. kInvalidInput for bytes that are not whole elements, a task that the graph lacks or that is not one of its
// backward tasks on the slice's stream, an after_task launched later, a graph without backward tasks, and slices out of
// launch order.
StatusOr<TaskGraph> WithGradientSlices(TaskGraph graph, std::span<const GradientSlice> slices);

// The graph that a plan stands for: its schedule in its order (BuildPlanned), with the slices of its gradients where
// they say, whose names in the order play no part. kInvalidInput also when the slices are not the workload's
// gradient_bytes.
StatusOr<TaskGraph> BuildPlan(const Plan& plan, const Workload& workload, const Cluster& cluster);

}  // namespace moeplan
