#include "agent/what_to_measure.h"

#include "models/workload/resolve_grid.h"

namespace moeplan::agent {

StatusOr<std::vector<Measurement>> WhatToMeasure(const CalibrationRequest& request, const Cluster& cluster) {
  if (request.graph) return MeasurementsOfGraph(*request.graph, cluster);
  StatusOr<std::vector<Workload>> resolved = ResolveGrid(request.grid, cluster);
  if (!resolved.ok()) return resolved.status().Within(request.grid_origin);
  if (!request.operations.empty()) return MeasurementsOfOperations(request.operations, *resolved, cluster);
  return resolved->empty() ? MeasurementsOfLayouts(cluster, request.step_needs) : MeasurementsOf(*resolved, cluster);
}

}  // namespace moeplan::agent
