// An AgentConnection is one connection of an agent to a planner (AgentService.Attach), until either end leaves.
//
// Nothing here blocks but the destructor, which ends the connection and waits for its last callback. What the planner
// does not read in time ends the connection.
//
// Threads: Send and End from any; the callbacks come on threads of the transport, one at a time, and may call Send and
// End but must not destroy the connection. Must not be carried across fork().
#pragma once

#include <functional>
#include <memory>

#include "models/status.h"
#include "moeplan/v1/agent_service.pb.h"

namespace moeplan {

class AgentConnection {
 public:
  struct Callbacks {
    std::function<void(v1::AttachResponse message)> received;
    // Once, as the last: why it is over. kInfeasible and kInvalidInput are the planner's refusal, kUnavailable that
    // nobody answers (any more).
    std::function<void(const Status& why)> ended;
  };

  virtual ~AgentConnection() = default;

  // Returns false when the connection has ended or ends because of this.
  virtual bool Send(v1::AttachRequest message) = 0;
  virtual void End() = 0;
};

// Connects and registers. kUnavailable: nobody answers there.
using ConnectAgent = std::function<StatusOr<std::unique_ptr<AgentConnection>>(const v1::AgentRegistration& registration,
                                                                              AgentConnection::Callbacks callbacks)>;

}  // namespace moeplan
