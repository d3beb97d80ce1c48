// An agent holds the ranks of a machine for a planner until it is told to stop.
//
// It connects, registers, starts and ends ranks as the planner says, and passes commands and answers on. Whenever the
// connection is lost it ends its ranks, waits a little (longer each time, never the same) and connects again, for ever;
// it logs an error once, not each time. The planner's silence counts as a lost connection. The ranks end with the
// agent, however it ends (executor/launch/launch.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "executor/launch/launch.h"
#include "models/status.h"
#include "moeplan/v1/agent_service.pb.h"
#include "proto/agent_connection.h"

namespace moeplan::agent {

struct NodeAgentOptions {
  ConnectAgent connect;                // Connects to the planner.
  std::string planner;                 // The address of the planner, for the log.
  v1::AgentRegistration registration;  // Complete.
  // Starts all ranks of the agent. Called on the thread of RunNodeAgent.
  std::function<StatusOr<std::unique_ptr<executor::Launch>>()> launch;
  // Ranks that run already and serve one session after the other. They stand in the place of `launch` where a launch
  // must not be repeated beside other threads. Every one of them answers every command in the end.
  std::unique_ptr<executor::Launch> kept_ranks;
  int stop_fd = -1;        // Readable: time to stop.
  std::uint64_t seed = 0;  // The seed of the pauses before it connects again.
  double first_pause_s = 0.2, longest_pause_s = 10;
  std::function<void(std::string_view line)> log = [](std::string_view) {};
};

// Runs until it is told to stop: OK. An error is one that connecting again cannot mend: the planner's refusal
// (kInfeasible another version, kInvalidInput a wrong registration, ...), or kPeerLost when kept ranks have ended.
Status RunNodeAgent(NodeAgentOptions options);

}  // namespace moeplan::agent
