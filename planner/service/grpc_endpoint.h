// The methods over gRPC, with health checking and reflection.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "models/status.h"
#include "planner/service/access/open_streams.h"
#include "planner/service/calls/dispatcher.h"
#include "planner/service/fleet/agent_hub.h"
#include "planner/service/log.h"
#include "planner/service/tls.h"
#include "planner/service/watch/plan_watchers.h"
#include "proto/host_port.h"

namespace moeplan::service {

class GrpcEndpoint {
 public:
  // What it serves, borrowed for its life.
  struct Uses {
    const Dispatcher& dispatcher;
    OpenStreams& streams;
    PlanWatchers& watchers;
    AgentHub* hub = nullptr;                // Null: agents are refused.
    int most_connections = 0;               // At once; beyond, new ones are closed.
    std::function<void()> refused = [] {};  // Called for each connection that is one too many.
    LogSink log = [](const LogRecord&) {};
  };

  // Serves once it answers. kUnavailable when the address cannot be listened on.
  static StatusOr<std::unique_ptr<GrpcEndpoint>> Start(const HostPort& address, const Tls& tls, const Uses& uses);

  virtual ~GrpcEndpoint() = default;

  // The address with the port that was bound.
  virtual HostPort address() const = 0;

  // Takes no new calls and returns when the old ones are answered; what is left after `grace` is cancelled. Once.
  virtual void Shutdown(std::chrono::milliseconds grace) = 0;
};

}  // namespace moeplan::service
