// Decides what a calibration measures when it is told operations, workloads, or nothing.
#pragma once

#include <string>
#include <vector>

#include "agent/calibrate.h"
#include "models/cost/samples.h"
#include "models/status.h"
#include "models/workload/workload.h"

namespace moeplan::agent {

struct CalibrationRequest {
  // Where there are some, these are measured at their sizes, and nothing else.
  std::vector<Sample> operations;
  // Else what these workloads need is measured, or, without any, what every legal layout needs. They are not resolved.
  std::vector<Workload> grid;
  std::string grid_origin;  // Begins the errors about the grid, such as its file.
};

// Returns the measurements, most useful first where no operations are given. kInvalidInput: the grid does not fit the
// cluster, or no workload has the shapes of an operation.
StatusOr<std::vector<Measurement>> WhatToMeasure(const CalibrationRequest& request, const Cluster& cluster);

}  // namespace moeplan::agent
