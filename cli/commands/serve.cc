#include <signal.h>

#include <cstdio>
#include <memory>

#include "cli/calibration_driver.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/stop_signals.h"
#include "planner/service/server.h"

namespace moeplan::cli {
namespace {

constexpr double kMissedHeartbeats = 3;  // Then an agent is taken for dead.

struct ServeOptions {
  std::string db;
  std::string grpc = "127.0.0.1:7070", http = "127.0.0.1:7080";
  std::string heartbeat = "5s";
};

void AwaitStop(const sigset_t& signals) {
  int signal = 0;
  sigwait(&signals, &signal);
}

Status Run(const ServeOptions& options) {
  const sigset_t signals = BlockStopSignals();
  const auto log = [](std::string_view line) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  };
  ASSIGN_OR_RETURN(const double heartbeat_s, ParseSeconds("--agent-heartbeat", options.heartbeat));
  ASSIGN_OR_RETURN(const std::unique_ptr<Server> server,
                   Server::Start({.store = options.db,
                                  .grpc_address = options.grpc,
                                  .http_address = options.http,
                                  .agents = {.heartbeat_s = heartbeat_s,
                                             .lost_after_s = kMissedHeartbeats * heartbeat_s,
                                             .driver = MakeCalibrationDriver(NowText)},
                                  .log = log}));
  std::printf("serving %s: gRPC on %s, HTTP on http://%s\n", options.db.c_str(), server->grpc_address().c_str(),
              server->http_address().c_str());
  std::fflush(stdout);
  AwaitStop(signals);
  server->Shutdown();
  return OkStatus();
}

}  // namespace

void AddServe(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<ServeOptions>();
  CLI::App* command = AddCommand(app, invocation, "serve", "Answer planning questions over gRPC until told to stop",
                                 "moeplan serve --db moeplan.db --grpc 127.0.0.1:7070 --http 127.0.0.1:7080",
                                 [options] { return Run(*options); });
  command->add_option("--db", options->db, "Database of profiles (made when absent)")->required();
  command->add_option("--grpc", options->grpc, "HOST:PORT for gRPC; port 0: a free one")->capture_default_str();
  command->add_option("--http", options->http, "HOST:PORT for HTTP; port 0: a free one")->capture_default_str();
  command->add_option("--agent-heartbeat", options->heartbeat, "How often agents and planner say that they live")
      ->capture_default_str();
}

}  // namespace moeplan::cli
