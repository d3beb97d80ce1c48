#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <memory>
#include <thread>
#include <vector>

#include "cli/calibration_driver.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/stop_signals.h"
#include "executor/owned_fd.h"
#include "models/text.h"
#include "moeplan/v1/reproduced_steps.pb.h"
#include "planner/service/descriptors.h"
#include "planner/service/server.h"
#include "proto/json.h"
#include "web/pages.h"

namespace moeplan::cli {
namespace {

constexpr double kMissedHeartbeats = 3;  // After so many an agent is taken for dead.

struct ServeOptions {
  std::string db;
  std::string grpc = "127.0.0.1:7070", http = "127.0.0.1:7080";
  std::string tls_certificate, tls_key, tls_client_authority;
  std::string measured_steps;
  bool insecure = false, exposed_http2 = false;
  int max_grpc_connections = 4096;
  std::string heartbeat = "5s", between_reports = "5s";
  std::string log_format = "text", log_level = "info";
};

StatusOr<service::LogLevel> LevelNamed(const std::string& name) {
  for (const service::LogLevel level :
       {service::LogLevel::kDebug, service::LogLevel::kInfo, service::LogLevel::kWarning, service::LogLevel::kError}) {
    if (service::Name(level) == name) return level;
  }
  return InvalidInput(StrCat("--log-level: found ", name, ", expected debug, info, warning or error"));
}

using LineOf = std::string (*)(const service::LogRecord&, std::chrono::system_clock::time_point);
StatusOr<LineOf> FormatNamed(const std::string& name) {
  if (name == "text") return &service::ToTextLine;
  if (name == "json") return &service::ToJsonLine;
  return InvalidInput(StrCat("--log-format: found ", name, ", expected text or json"));
}

void AwaitStop(const sigset_t& signals) {
  int signal = 0;
  sigwait(&signals, &signal);
}

// A planner that is told to end waits kGrace for the calls in progress; then it cancels them, and they have kToNotice.
// What did not end is then logged, for kToSay at most.
constexpr std::chrono::seconds kGrace{10}, kToNotice{2};
constexpr std::chrono::duration<unsigned> kToSay{1};

// Ends the process by the signal itself, as whoever sent it twice expects.
[[noreturn]] void EndBy(int number) {
  signal(number, SIG_DFL);
  sigset_t again;
  sigemptyset(&again);
  sigaddset(&again, number);
  raise(number);
  pthread_sigmask(SIG_UNBLOCK, &again, nullptr);
  _exit(128 + number);
}

// The same with the signal that can be read there, if one can.
void EndBySignalOf(int signal_fd) {
  signalfd_siginfo signal = {};
  if (read(signal_fd, &signal, sizeof signal) == sizeof signal) EndBy(static_cast<int>(signal.ssi_signo));
}

// A signal that comes while the planner starts, as while another process holds the database, ends it at once. That is
// as safe as EndDespite, for its reasons.
class EndedWhileStarting {
 public:
  explicit EndedWhileStarting(const sigset_t& signals)
      : started_(eventfd(0, EFD_CLOEXEC)), signal_(signalfd(-1, &signals, SFD_CLOEXEC)), watch_([this] { Watch(); }) {}
  // From here on signals are whose who waits for them.
  ~EndedWhileStarting() { eventfd_write(started_.get(), 1); }

 private:
  void Watch() const {
    pollfd waits[] = {{.fd = started_.get(), .events = POLLIN, .revents = 0},
                      {.fd = signal_.get(), .events = POLLIN, .revents = 0}};
    poll(waits, std::size(waits), -1);
    if (waits[0].revents == 0) EndBySignalOf(signal_.get());
  }

  const executor::OwnedFd started_, signal_;
  const std::jthread watch_;
};

// Leaves threads behind that still use the store, which is safe as being killed is: a transaction is in SQLite's log as
// a whole or not at all, what was acknowledged was synced before, and who opens the database next takes the locks of a
// process that is gone for free (tests/planner/crash_test.cc kills a planner at any moment). Destructors must not run,
// since those threads use what they would destroy.
[[noreturn]] void EndDespite(const std::vector<service::Server::Work>& work, const service::LogSink& log) {
  // Nobody may read the log, and writing to it waits then. A handler, since a container's first process takes no notice
  // of signals without one.
  static const int code = ExitCode(InternalError(""));
  signal(SIGALRM, [](int) { _exit(code); });
  alarm(kToSay.count());
  for (const service::Server::Work& one : work) {
    log({service::LogLevel::kError,
         "does not stop although it was cancelled",
         {{"method", one.method}, {"requestId", one.request_id}, {"s", StrCat(one.seconds)}}});
  }
  log({service::LogLevel::kError, "the planner ends without waiting any longer", {{"calls", StrCat(work.size())}}});
  _exit(code);
}

// Shuts the server down. Ends the process at once when a signal comes meanwhile, and when work goes on past its time.
void ShutDown(service::Server& server, const sigset_t& signals, const service::LogSink& log) {
  const executor::OwnedFd ended(eventfd(0, EFD_CLOEXEC)), again(signalfd(-1, &signals, SFD_CLOEXEC));
  const std::jthread shutting_down([&] {
    server.Shutdown(kGrace);
    eventfd_write(ended.get(), 1);
  });
  pollfd waits[] = {{.fd = ended.get(), .events = POLLIN, .revents = 0},
                    {.fd = again.get(), .events = POLLIN, .revents = 0}};
  constexpr std::chrono::milliseconds kLimit = kGrace + kToNotice;
  const int came = poll(waits, std::size(waits), static_cast<int>(kLimit.count()));
  if (waits[0].revents != 0) return;
  if (came > 0) EndBySignalOf(again.get());
  EndDespite(server.work_in_progress(), log);
}

// Returns the connections asked for, or as many as this process may have descriptors for.
int ConnectionsOf(const ServeOptions& options, const service::LogSink& log) {
  const std::uint64_t descriptors = service::RaiseDescriptorLimit();
  const int fit = service::GrpcConnectionsWithin(descriptors, options.max_grpc_connections);
  if (fit < options.max_grpc_connections) {
    log({service::LogLevel::kWarning,
         "`ulimit -Hn` leaves room for fewer gRPC connections than --max-grpc-connections",
         {{"asked", StrCat(options.max_grpc_connections)},
          {"allowed", StrCat(fit)},
          {"descriptors", StrCat(descriptors)}}});
  }
  return fit;
}

StatusOr<std::unique_ptr<service::Server>> Start(const ServeOptions& options, const sigset_t& signals,
                                                 service::LogLevel level, const service::LogSink& log) {
  ASSIGN_OR_RETURN(const double heartbeat_s, ParseSeconds("--agent-heartbeat", options.heartbeat));
  ASSIGN_OR_RETURN(const double between_reports_s, ParseSeconds("--report-interval", options.between_reports));
  std::shared_ptr<const v1::ReproducedSteps> measured_steps;
  if (!options.measured_steps.empty()) {
    ASSIGN_OR_RETURN(const std::string text,
                     ReadTextFile(options.measured_steps, "what reproduce steps --json prints"));
    ASSIGN_OR_RETURN(v1::ReproducedSteps reproduced, FromJson<v1::ReproducedSteps>(text, options.measured_steps));
    measured_steps = std::make_shared<const v1::ReproducedSteps>(std::move(reproduced));
  }
  const EndedWhileStarting watch(signals);
  return service::Server::Start({.store = options.db,
                                 .grpc_address = options.grpc,
                                 .http_address = options.http,
                                 .max_grpc_connections = ConnectionsOf(options, log),
                                 .agents = {.heartbeat_s = heartbeat_s,
                                            .lost_after_s = kMissedHeartbeats * heartbeat_s,
                                            .driver = MakeCalibrationDriver(NowText)},
                                 .drift = {.between_reports_s = between_reports_s},
                                 .tls = {.certificate = options.tls_certificate,
                                         .key = options.tls_key,
                                         .client_authority = options.tls_client_authority},
                                 .insecure = options.insecure,
                                 .exposed_http2 = options.exposed_http2,
                                 .pages = web::DashboardPages(),
                                 .measured_steps = std::move(measured_steps),
                                 .log = log,
                                 .log_level = level});
}

Status Run(const ServeOptions& options) {
  ASSIGN_OR_RETURN(const service::LogLevel level, LevelNamed(options.log_level));
  ASSIGN_OR_RETURN(const LineOf line_of, FormatNamed(options.log_format));
  const auto log = [level, line_of](const service::LogRecord& record) {
    if (record.level < level) return;
    std::fprintf(stderr, "%s\n", line_of(record, std::chrono::system_clock::now()).c_str());
  };
  const sigset_t signals = BlockStopSignals();
  ASSIGN_OR_RETURN(const std::unique_ptr<service::Server> server, Start(options, signals, level, log));
  std::printf("serving %s: gRPC on %s, HTTP on %s://%s\n", options.db.c_str(), server->grpc_address().c_str(),
              options.tls_certificate.empty() ? "http" : "https", server->http_address().c_str());
  RETURN_IF_ERROR(FlushOutput());
  AwaitStop(signals);
  ShutDown(*server, signals, log);
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
  command
      ->add_option("--max-grpc-connections", options->max_grpc_connections,
                   "gRPC connections at once: one for each agent and each job that asks or watches")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--agent-heartbeat", options->heartbeat, "How often agents and planner say that they live")
      ->capture_default_str();
  command
      ->add_option("--report-interval", options->between_reports,
                   "Of runs that jobs report faster, the test for drift counts one in this time")
      ->capture_default_str();
  command->add_option("--tls-cert", options->tls_certificate, "Certificate of both (PEM): use TLS");
  command->add_option("--tls-key", options->tls_key, "Its key (PEM)");
  command->add_option("--tls-client-ca", options->tls_client_authority,
                      "Authority (PEM) that clients need a certificate of");
  command->add_flag("--insecure", options->insecure, "Let other machines reach it without TLS");
  command->add_flag("--exposed-http2", options->exposed_http2,
                    "Let strangers speak HTTP/2 with gRPC: no front, no --tls-client-ca");
  command->add_option("--measured-steps", options->measured_steps,
                      "What `moeplan reproduce steps --json` printed, for the dashboard to show");
  command->add_option("--log-format", options->log_format, "text or json, on standard error")->capture_default_str();
  command->add_option("--log-level", options->log_level, "debug (every call), info, warning or error")
      ->capture_default_str();
}

}  // namespace moeplan::cli
