// CLUSTER.json, a cluster that is simulated, from its message. Pure.
#pragma once

#include "models/cluster/simulated_cluster.h"
#include "models/status.h"
#include "moeplan/v1/cluster.pb.h"

namespace moeplan {

// Checked by ValidateSimulatedCluster; paths of errors are those of the file.
StatusOr<SimulatedCluster> SimulatedClusterFromProto(const v1::SimulatedCluster& message);

v1::SimulatedCluster ToProto(const SimulatedCluster& cluster);

}  // namespace moeplan
