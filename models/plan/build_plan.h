// The task graph that a plan stands for, for whoever runs, prices or simulates it.
//
// Pure.
#pragma once

#include "models/plan/plan.h"
#include "models/schedule/task_graph.h"
#include "models/status.h"

namespace moeplan {

// The graph that a plan stands for: its schedule in its order (BuildPlanned), with the slices of its gradients where
// they say, whose names in the order play no part. kInvalidInput also when the slices are not the workload's
// gradient_bytes.
StatusOr<TaskGraph> BuildPlan(const Plan& plan, const Workload& workload, const Cluster& cluster);

}  // namespace moeplan
