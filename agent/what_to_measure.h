// Decides what a calibration measures when it is told operations, workloads, or nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/calibrate.h"
#include "models/cost/samples.h"
#include "models/status.h"
#include "models/training/training_graph.h"
#include "models/workload/workload.h"

namespace moeplan::agent {

struct CalibrationRequest {
  // If there are any, they are measured at their sizes, and nothing else is.
  std::vector<Sample> operations;
  // Otherwise the needs of these workloads are measured; without workloads, those of every legal layout, and of steps
  // these (planner/layout/step_needs.h). Not resolved.
  std::vector<Workload> grid;
  std::string grid_origin;  // Begins the errors about the grid, such as its file.
  std::vector<Need> step_needs;
  // Instead of all that: what this training graph needs (models/measurement/graph_needs.h).
  std::optional<TrainingGraph> graph;
};

// Returns the measurements, most useful first where no operations are given. kInvalidInput: the grid does not fit the
// cluster, or no workload has the shapes of an operation.
StatusOr<std::vector<Measurement>> WhatToMeasure(const CalibrationRequest& request, const Cluster& cluster);

}  // namespace moeplan::agent
