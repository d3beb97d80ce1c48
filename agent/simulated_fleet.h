// Ranks on a cluster that is simulated.
#pragma once

#include <memory>

#include "agent/fleet.h"
#include "models/cluster/simulated_cluster.h"
#include "models/status.h"

namespace moeplan::agent {

struct SimulatedFleetOptions {
  bool values = false;               // Whether ranks compute values, which takes long.
  double collective_deadline_s = 0;  // At least kSimulatedDeadlineS.
};

// All ranks of a simulated cluster take turns in one process, so that the first may wait long for the last.
inline constexpr double kSimulatedDeadlineS = 600;

// All ranks of the cluster, not yet connected; errors as below.
StatusOr<std::unique_ptr<executor::Launch>> LaunchSimulatedRanks(const SimulatedCluster& cluster, bool values);
// That samples come from it.
Provenance SimulatedProvenance(const SimulatedCluster& cluster);

// kUnavailable where the simulator's library is not; the error of a cluster that is none names its field. Fork while
// no other thread holds a lock: several fleets are best started by one thread before others drive them.
StatusOr<Fleet> StartSimulated(const SimulatedCluster& cluster, const SimulatedFleetOptions& options = {});

}  // namespace moeplan::agent
