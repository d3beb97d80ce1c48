// Clusters to and from messages. `path` is where the message stands in its file ("cluster"). Pure.
#pragma once

#include <string_view>

#include "models/status.h"
#include "models/workload/workload.h"
#include "moeplan/v1/cluster.pb.h"

namespace moeplan {

// Checked by ValidateCluster.
StatusOr<Cluster> ClusterFromProto(const v1::Cluster& message, std::string_view path = "cluster");

v1::Cluster ToProto(const Cluster& cluster);

}  // namespace moeplan
