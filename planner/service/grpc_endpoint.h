// The handlers behind gRPC. The only place of the service that knows gRPC.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "models/status.h"
#include "moeplan/v1/plan.pb.h"
#include "planner/service/handlers/environment.h"
#include "planner/service/worker_pool.h"
#include "proto/host_port.h"

namespace moeplan::service {

class GrpcEndpoint {
 public:
  // What calls need, borrowed for the endpoint's life. `planned` is told each answer to Plan after it was sent, on a
  // worker.
  struct Uses {
    const Environment& environment;
    WorkerPool& workers;
    WorkerPool& appenders;  // For calls that mostly wait for the disk.
    std::function<void(const v1::PlanResponse& answer)> planned;
  };

  // Serves once it answers. kUnavailable when the address cannot be listened on.
  static StatusOr<std::unique_ptr<GrpcEndpoint>> Start(const HostPort& address, Uses uses);

  virtual ~GrpcEndpoint() = default;

  // The address with the port that was bound.
  virtual HostPort address() const = 0;

  // Takes no new calls and returns when the old ones are answered; what is left after `grace` is cancelled. Once.
  virtual void Shutdown(std::chrono::milliseconds grace) = 0;
};

}  // namespace moeplan::service
