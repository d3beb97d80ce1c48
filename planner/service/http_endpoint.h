// HTTP for people and probes. The only place of the service that knows the HTTP library.
//
// GET /healthz: 200 {"status": "SERVING", "version"}, or 503 with NOT_SERVING once serving has ended. GET /: what this
// is and where gRPC listens, until there is a dashboard. JSON; nothing a browser could run.
#pragma once

#include <memory>
#include <string>

#include "models/status.h"
#include "proto/host_port.h"

namespace moeplan::service {

class HttpEndpoint {
 public:
  // Serves once it answers. kUnavailable when the address cannot be listened on.
  static StatusOr<std::unique_ptr<HttpEndpoint>> Start(const HostPort& address, const std::string& grpc_address);

  // Answers what has arrived and frees the address.
  virtual ~HttpEndpoint() = default;

  // The address with the port that was bound.
  virtual HostPort address() const = 0;

  virtual void SetNotServing() = 0;
};

}  // namespace moeplan::service
