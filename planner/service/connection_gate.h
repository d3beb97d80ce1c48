// Listens and accepts in gRPC's place, so that no more than so many of its connections are open at once.
//
// gRPC 1.51 has no such limit, and it stops listening for good when it has once run out of file descriptors; here,
// accepting goes on when some are free again. Beyond the limit a connection is closed as soon as it is made, and its
// caller tries again later. A connection counts until whoever took its socket closes it.
//
// Threads: connections are taken on a thread of the gate's own, one at a time.
#pragma once

#include <functional>
#include <memory>

#include "models/status.h"
#include "planner/service/log.h"
#include "proto/host_port.h"

namespace moeplan::service {

class ConnectionGate {
 public:
  struct Uses {
    int most_connections = 0;               // At least 1.
    int unacknowledged_ms = 0;              // What was sent and not acknowledged for so long ends a connection.
    std::function<void(int fd)> take;       // Is given a connected socket that does not block, and closes it.
    std::function<void()> refused = [] {};  // Called for each connection beyond the limit.
    LogSink log = [](const LogRecord&) {};  // Told at most once a minute of either: refused, not accepted.
  };

  // Listens on every address that the name has; of a wildcard, on IPv4 and IPv6. Callers wait until Open.
  // kUnavailable when there is no such address.
  static StatusOr<std::unique_ptr<ConnectionGate>> Listen(const HostPort& address);
  // Listens no more; nothing is taken from then on.
  virtual ~ConnectionGate() = default;

  // The address with the port that was bound.
  virtual HostPort address() const = 0;
  // Begins to accept. Once.
  virtual void Open(Uses uses) = 0;
};

}  // namespace moeplan::service
