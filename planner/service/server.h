// The planner as a server: gRPC for jobs and agents, HTTP for people and probes, around one store.
//
// gRPC serves the services of moeplan.v1, health checking and reflection; messages up to 64 MiB. HTTP serves the same
// methods as JSON, POST /moeplan.v1.SERVICE/METHOD, and GET /healthz, /metrics (Prometheus), /openapi.json and /.
//
// Calls run on a few workers; what neither runs nor finds room in the queue is answered RESOURCE_EXHAUSTED at once.
// A call that is cancelled or past its deadline is told to stop. Equal plans are answered from memory until a profile
// is stored, by this process or, within a tenth of a second, by another. Answered plans are kept in the store, behind
// the answer: that a plan could not be kept is logged, never the caller's error. Calibrations
// that had not ended when the store was last served go on (fleet/calibrations.h). A store that may only be read is
// served all the same; puts then answer PERMISSION_DENIED.
//
// Trust: an address that other machines reach needs TLS, or `insecure`. A gRPC address that they reach also needs a
// client authority, so that who has no certificate never gets to speak HTTP/2, or `exposed_http2` (decisions/0022).
// Once the store has had a token
// (`moeplan token create`), every call needs one (access/access.h); /healthz and gRPC's health checks do not.
//
// Threads: any thread may call any method. Catch no signals here: whoever owns the process calls Shutdown.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/status.h"
#include "planner/service/drift/drift_options.h"
#include "planner/service/fleet/agent_service_options.h"
#include "planner/service/http/page.h"
#include "planner/service/log.h"
#include "planner/service/tls.h"

namespace moeplan::v1 {
class ReproducedSteps;
}  // namespace moeplan::v1

namespace moeplan::service {

struct ServerOptions {
  std::filesystem::path store;                         // The database; made when absent.
  std::string grpc_address = "127.0.0.1:7070";         // HOST:PORT; port 0: a free one.
  std::string http_address = "127.0.0.1:7080";         // Likewise.
  int workers = 0;                                     // Calls that run at once; 0: one for each core.
  int queue_capacity = 64;                             // Calls that may wait for a worker. At least 0.
  int max_grpc_connections = 4096;                     // At once; beyond, new ones are closed. At least 1.
  std::chrono::milliseconds store_busy_timeout{5000};  // How long a call waits for another process's write.
  AgentServiceOptions agents;                          // Of moeplan.v1.AgentService.
  DriftOptions drift;                                  // Of what jobs report.
  TlsFiles tls;                                        // Of both addresses.
  bool insecure = false;                               // Whether other machines may reach it without TLS.
  bool exposed_http2 = false;                          // Whether strangers may speak HTTP/2 with gRPC.
  http::Pages pages;                                   // What GET answers beside its own; they outlive the server.
  std::shared_ptr<const v1::ReproducedSteps> measured_steps;  // For people to look at; null: none.
  LogSink log = [](const LogRecord&) {};                      // Told what happens.
  LogLevel log_level = LogLevel::kInfo;  // The least that is worth telling; answered calls are kDebug.
};

class Server {
 public:
  // Answers once both addresses are served. kInvalidInput: an address is wrong, or other machines reach it without what
  // Trust above asks for, or the TLS files are wrong. kUnavailable: an address is in use (the message names it and what
  // to do). Errors of the store as in db/store.h. After an error nothing is left running.
  static StatusOr<std::unique_ptr<Server>> Start(ServerOptions options);

  // Shuts down without mercy if that has not been done.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // As bound: where 0 was asked for, the port that was free.
  const std::string& grpc_address() const;
  const std::string& http_address() const;
  // Whether the store may only be read.
  bool read_only() const;
  // Calls taken and not yet answered.
  int calls_in_progress() const;

  // Returns when Shutdown has finished.
  void Wait();

  // Takes no new calls, lets those in progress end, and after `grace` cancels what is left: by then, or half a second
  // later, all are answered and both addresses are free. Returns when all work has ended, too, which work that does not
  // look whether it was told to stop may put off for good. A second call waits for the first.
  void Shutdown(std::chrono::milliseconds grace = std::chrono::seconds(10));

  // The calls that workers work on now, whether somebody still waits for the answer or not.
  struct Work {
    std::string method, request_id;
    double seconds = 0;  // Since it began.
  };
  std::vector<Work> work_in_progress() const;

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace moeplan::service
