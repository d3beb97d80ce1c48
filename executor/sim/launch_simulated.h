// Starts a job on a simulated cluster: one child process, forked and not another program, that serves all ranks, over a
// stream for each.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "executor/launch/launch.h"
#include "executor/rank_backend.h"
#include "executor/sim/sim_world.h"
#include "models/cluster/simulated_cluster.h"
#include "models/status.h"

namespace moeplan::executor {

// Answers a command of a rank. Called on the rank's thread, and destroyed there.
using RankHandler = std::function<std::string(const std::string& command)>;
// In the child, once for each rank, on its thread. `backend` gives the rank to whoever joins as `rank`.
using MakeRankHandler = std::function<RankHandler(int rank, const RankBackend& backend)>;

// The Launch has a rank for each GPU; `data` is that of SimOptions. Frames (executor/launch/frames.h) that are written
// to a rank go to its handler, whose answer comes back. Ranks run in rank order once all of them have their next
// command (rank_turns.h), so every rank must get as many. The child ends with the Launch, with this process, or when
// all streams are closed.
//
// kUnavailable where this process may not have as many open files. Fork while no other thread holds a lock that a
// handler needs.
StatusOr<std::unique_ptr<Launch>> LaunchSimulated(const SimulatedCluster& cluster, bool data,
                                                  const MakeRankHandler& make_handler);

using Simulator = decltype(LaunchSimulated);

}  // namespace moeplan::executor
