// This is how an agent connects to a planner over gRPC.
#pragma once

#include "planner/client/connect_options.h"
#include "proto/agent_connection.h"

namespace moeplan::client {

// Makes connections, each within the options' deadline.
ConnectAgent ConnectAgentWith(const ConnectOptions& options);

}  // namespace moeplan::client
