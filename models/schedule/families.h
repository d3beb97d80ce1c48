// The builder of each family, for models/schedule alone; everyone else calls BuildSchedule (schedules.h).
#pragma once

#include <vector>

#include "models/schedule/graph_builder.h"
#include "models/schedule/knobs.h"

namespace moeplan {

// What their GraphBuilder wants to know of the knobs' chunk_shares, which BuildSchedule has checked.
std::vector<int> ChunkUnitsOf(const Knobs& knobs);

TaskGraph BuildBaseline(const Knobs& knobs, const Workload& workload, const Cluster& cluster);
TaskGraph BuildBaselineTp(const Knobs& knobs, const Workload& workload, const Cluster& cluster);
TaskGraph BuildParmS1(const Knobs& knobs, const Workload& workload, const Cluster& cluster);
TaskGraph BuildParmS2(const Knobs& knobs, const Workload& workload, const Cluster& cluster);
TaskGraph BuildOncePerNode(const Knobs& knobs, const Workload& workload, const Cluster& cluster);
TaskGraph BuildPipeline(const Knobs& knobs, const Workload& workload, const Cluster& cluster);
// O1 is O2 with one chunk and nothing to copy into place; O3 copies on a stream of its own.
TaskGraph BuildMonta(const Knobs& knobs, const Workload& workload, const Cluster& cluster);

}  // namespace moeplan
