// One connection of an agent to a planner (AgentService.Attach), until either end leaves.
//
// Nothing here blocks but the destructor, which ends the connection and waits for its last callback. What the planner
// does not read in time ends the connection.
//
// Threads: Send and End from any; the callbacks come on threads of gRPC, one at a time, and may call Send and End but
// must not destroy the connection. Must not be carried across fork().
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "models/status.h"
#include "moeplan/v1/agent_service.pb.h"
#include "planner/client/connect_options.h"

namespace moeplan {

class AgentConnection {
 public:
  struct Callbacks {
    std::function<void(v1::AttachResponse message)> received;
    // Once, as the last: why it is over. kInfeasible and kInvalidInput are the planner's refusal, kUnavailable that
    // nobody answers (any more).
    std::function<void(const Status& why)> ended;
  };

  // Connects within the options' deadline and registers. kUnavailable: nobody answers there.
  static StatusOr<std::unique_ptr<AgentConnection>> Open(const ConnectOptions& options,
                                                         const v1::AgentRegistration& registration,
                                                         Callbacks callbacks);
  virtual ~AgentConnection() = default;

  // False when the connection has ended or ends because of it.
  virtual bool Send(v1::AttachRequest message) = 0;
  virtual void End() = 0;
};

}  // namespace moeplan
