// HTTP/1.1, with or without TLS. With wire.h the only place of the service that knows the HTTP library.
//
// Connections cost memory, not threads, and everything has an end: a handshake, a request's head and its body each have
// to arrive within their time however slowly they drip, and there are at most kMaxConnections.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "models/status.h"
#include "planner/service/http/routes.h"
#include "planner/service/tls.h"
#include "proto/host_port.h"

namespace moeplan::service::http {

// What one connection, or all of them, may take.
struct Limits {
  int connections = 512;                        // Another one is closed at once.
  size_t head_bytes = size_t{16} << 10;         // 431 beyond.
  size_t body_bytes = size_t{16} << 20;         // 413 beyond; longer messages go by gRPC.
  size_t all_bodies_bytes = size_t{256} << 20;  // Of all requests that are not answered, as they arrive; 503 beyond.
  std::chrono::milliseconds head{
      10'000};  // For the handshake, and for a request's head from the end of the one before.
  std::chrono::milliseconds body{30'000};  // For its body, and for the other end to take the answer.
};

class Endpoint {
 public:
  // Serves once it answers. kUnavailable when the address cannot be listened on.
  static StatusOr<std::unique_ptr<Endpoint>> Start(const HostPort& address, const Tls& tls, Routes::Uses uses,
                                                   const Limits& limits = {});

  // Shuts down without mercy if that has not been done.
  virtual ~Endpoint() = default;

  // The address with the port that was bound.
  virtual HostPort address() const = 0;

  // /healthz says so, calls are turned away.
  virtual void SetNotServing() = 0;

  // Takes no new connections, lets answers that are being worked out be sent, for at most `grace`, and frees the
  // address.
  virtual void Shutdown(std::chrono::milliseconds grace) = 0;
};

}  // namespace moeplan::service::http
