// A grid of workloads made fit for one cluster. Pure.
#pragma once

#include <vector>

#include "models/status.h"
#include "models/workload/workload.h"

namespace moeplan {

// Each resolved as by ResolveWorkload; errors name the workload, as "workloads[2] (NAME)".
StatusOr<std::vector<Workload>> ResolveGrid(const std::vector<Workload>& workloads, const Cluster& cluster);

}  // namespace moeplan
