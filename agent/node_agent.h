// An agent: holds the ranks of a machine for a planner, for as long as it is not told to stop.
//
// It connects, registers, starts and ends ranks as the planner says, and passes commands and answers on. Whenever the
// connection goes it ends its ranks, waits a little (longer each time, never the same) and connects again, for ever;
// what is wrong is said once, not each time. The planner's silence counts as a lost connection. The ranks end with the
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
#include "planner/client/connect_options.h"

namespace moeplan {

struct NodeAgentOptions {
  ConnectOptions planner;
  v1::AgentRegistration registration;  // Complete.
  // Starts all ranks of the agent. Called on the thread of RunNodeAgent.
  std::function<StatusOr<std::unique_ptr<Launch>>()> launch;
  // Ranks that are there already and serve one session after the other, for a launch that is not to be repeated beside
  // other threads; instead of `launch`. Every one of them answers every command in the end.
  std::unique_ptr<Launch> kept_ranks;
  int stop_fd = -1;        // Readable: time to stop.
  std::uint64_t seed = 0;  // Of the pauses before it connects again.
  double first_pause_s = 0.2, longest_pause_s = 10;
  std::function<void(std::string_view line)> log = [](std::string_view) {};
};

// OK when told to stop. Else what connecting again cannot mend: the planner's refusal (kInfeasible another version,
// kInvalidInput a wrong registration, ...), or kPeerLost when kept ranks have ended.
Status RunNodeAgent(NodeAgentOptions options);

}  // namespace moeplan
