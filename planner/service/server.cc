#include "planner/service/server.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "db/store.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/service/access/access.h"
#include "planner/service/access/open_streams.h"
#include "planner/service/calls/answer_cache.h"
#include "planner/service/calls/dispatcher.h"
#include "planner/service/calls/method.h"
#include "planner/service/calls/record.h"
#include "planner/service/errors.h"
#include "planner/service/fleet_desk.h"
#include "planner/service/grpc_endpoint.h"
#include "planner/service/handlers/environment.h"
#include "planner/service/handlers/outlier_memory.h"
#include "planner/service/http/endpoint.h"
#include "planner/service/listen.h"
#include "planner/service/metrics.h"
#include "planner/service/peer.h"
#include "planner/service/plan_log.h"
#include "planner/service/upkeep.h"
#include "planner/service/watch/plan_watchers.h"
#include "planner/service/worker_pool.h"

namespace moeplan::service {
namespace {

struct OpenedStore {
  Store store;
  std::optional<Store> sample_store;   // So that calls that read do not wait for syncs. Absent as below.
  std::optional<Store> listing_store;  // So that plans do not wait for lists. Likewise.
  std::optional<PlanLog> plan_log;     // Absent: the store may only be read.
  std::optional<Store> fleet_store;    // Likewise.
};

StatusOr<OpenedStore> OpenForReading(const ServerOptions& options, const Status& why_not_writing) {
  StatusOr<Store> store = Store::OpenReadOnly(options.store, {.busy_timeout = options.store_busy_timeout});
  if (!store.ok()) return why_not_writing;
  return OpenedStore{.store = *std::move(store)};
}

StatusOr<OpenedStore> OpenStore(const ServerOptions& options) {
  StatusOr<Store> store = Store::Open(options.store, {.busy_timeout = options.store_busy_timeout});
  if (!store.ok() && store.status().code() == StatusCode::kPermissionDenied) {
    return OpenForReading(options, store.status());
  }
  RETURN_IF_ERROR(store.status());
  ASSIGN_OR_RETURN(Store sample_store, Store::Open(options.store, {.busy_timeout = options.store_busy_timeout}));
  ASSIGN_OR_RETURN(Store listing_store,
                   Store::OpenReadOnly(options.store, {.busy_timeout = options.store_busy_timeout}));
  const auto not_kept = [log = options.log](const Status& why) {
    log({LogLevel::kWarning, "a reported run was not kept", {{"reason", why.message()}}});
  };
  ASSIGN_OR_RETURN(PlanLog plan_log, PlanLog::Open(options.store, PlanLog::Clock::now, not_kept));
  ASSIGN_OR_RETURN(Store fleet_store, Store::Open(options.store, {.busy_timeout = options.store_busy_timeout}));
  return OpenedStore{.store = *std::move(store),
                     .sample_store = std::move(sample_store),
                     .listing_store = std::move(listing_store),
                     .plan_log = std::move(plan_log),
                     .fleet_store = std::move(fleet_store)};
}

// Calls that wait for the same sync; they cost a thread each and no time.
constexpr int kAppenders = 32;

std::unique_ptr<FleetDesk> FleetOf(const ServerOptions& options, std::optional<Store> store, Puts& puts,
                                   std::function<bool(const std::string& token)> is_token) {
  if (!store) return nullptr;
  return std::make_unique<FleetDesk>(
      options.agents, *std::move(store), puts, options.drift,
      [log = options.log](std::string_view line) {
        log({LogLevel::kInfo, std::string(line), {}});
      },
      std::move(is_token));
}

int WorkersOf(const ServerOptions& options) {
  if (options.workers > 0) return options.workers;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

constexpr size_t kKeptAnswersBytes = size_t{64} << 20;

// The database and its log.
double BytesOf(const std::filesystem::path& store) {
  double bytes = 0;
  for (const char* suffix : {"", "-wal"}) {
    std::error_code absent;
    const auto size = std::filesystem::file_size(store.string() + suffix, absent);
    if (!absent) bytes += static_cast<double>(size);
  }
  return bytes;
}

}  // namespace

class Server::Impl final : private Aftermath {
 public:
  Impl(ServerOptions options, OpenedStore opened)
      : options_(std::move(options)),
        store_(std::move(opened.store)),
        sample_store_(std::move(opened.sample_store)),
        listing_store_(std::move(opened.listing_store)),
        plan_log_(std::move(opened.plan_log)),
        fleet_(FleetOf(options_, std::move(opened.fleet_store), puts_,
                       [this](const std::string& token) { return access_.HasToken(token); })),
        workers_(WorkersOf(options_), options_.queue_capacity),
        appenders_(kAppenders, options_.queue_capacity) {}

  ~Impl() override { Shutdown(std::chrono::milliseconds(0)); }

  Status Start(const HostPort& grpc_address, const HostPort& http_address, const Tls& tls) {
    ASSIGN_OR_RETURN(upkeep_, Upkeep::Start(options_.store, access_, streams_, cache_, options_.log,
                                            [this](const Profile& newest) { Stored(newest); }));
    if (fleet_) RETURN_IF_ERROR(fleet_->Resume());
    ASSIGN_OR_RETURN(grpc_, GrpcEndpoint::Start(grpc_address, tls, GrpcUses()));
    grpc_address_ = ToString(grpc_->address());
    ASSIGN_OR_RETURN(http_, http::Endpoint::Start(http_address, tls, HttpUses(http_address)));
    http_address_ = ToString(http_->address());
    WarnIfOpen(tls);
    WarnIfExposed(grpc_address, tls);
    if (read_only()) {
      options_.log({LogLevel::kWarning,
                    "the database may only be read: nothing is kept, and nothing can be calibrated",
                    {{"store", options_.store.string()}}});
    }
    return OkStatus();
  }

  const std::string& grpc_address() const { return grpc_address_; }
  const std::string& http_address() const { return http_address_; }
  bool read_only() const { return !plan_log_; }

  int calls_in_progress() const { return workers_.in_progress() + appenders_.in_progress(); }

  std::vector<Work> work_in_progress() const {
    std::vector<Work> work;
    const auto now = std::chrono::steady_clock::now();
    for (const WorkerPool* const pool : {&workers_, &appenders_}) {
      for (const WorkerPool::RunningJob& job : pool->running()) {
        work.push_back({.method = job.name.method,
                        .request_id = job.name.request_id,
                        .seconds = std::chrono::duration<double>(now - job.began).count()});
      }
    }
    return work;
  }

  void Wait() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return state_ == State::kEnded; });
  }

  void Shutdown(std::chrono::milliseconds grace) {
    if (!BeginShutdown()) return Wait();
    if (http_) http_->SetNotServing();
    // Calibrations and watched plans are told to stop now. That they do is waited for last: neither holds up what calls
    // are promised.
    std::jthread fleet_ends([this] {
      if (fleet_) fleet_->Shutdown();
    });
    watchers_.Shutdown();
    const auto until = std::chrono::steady_clock::now() + grace;
    if (grpc_) grpc_->Shutdown(grace);
    if (http_)
      http_->Shutdown(std::chrono::duration_cast<std::chrono::milliseconds>(
          std::max(std::chrono::steady_clock::duration(0), until - std::chrono::steady_clock::now())));
    // Waits for what they still keep of answered plans, too.
    workers_.End();
    appenders_.End();
    watchers_.Join();
    fleet_ends.join();
    grpc_.reset();
    http_.reset();
    upkeep_.reset();
    const std::scoped_lock lock(mutex_);
    state_ = State::kEnded;
    ended_.notify_all();
  }

 private:
  enum class State { kServing, kEnding, kEnded };

  void Stored(const Profile& newest) {
    metrics_.Fitted(newest);
    if (fleet_) fleet_->drift().Stored(newest.name, newest.version);
    watchers_.ProfilesChanged();
  }

  GrpcEndpoint::Uses GrpcUses() {
    return {.dispatcher = dispatcher_,
            .streams = streams_,
            .watchers = watchers_,
            .hub = environment_.agents,
            .most_connections = options_.max_grpc_connections,
            .refused = [this] { metrics_.ConnectionRefused(); },
            .log = options_.log};
  }

  http::Routes::Uses HttpUses(const HostPort& address) const {
    return {.dispatcher = dispatcher_,
            .access = access_,
            .metrics = metrics_,
            .grpc_address = grpc_address_,
            .pages = options_.pages,
            .loopback = IsLoopback(address)};
  }

  void Answered(const Call& call, const Answer& answer) {
    metrics_.Answered(call, answer);
    if (LevelOf(call.method(), answer) >= options_.log_level) options_.log(RecordOf(call, answer));
    WarnIfPassedOn(call.origin());
  }

  // Once: behind a front the planner's own address, of this machine alone, says nothing of who reaches it.
  void WarnIfPassedOn(const Origin& origin) {
    if (access_.asks_for_tokens() || warned_of_front_) return;
    const std::string from = origin.address();
    if (!IsPassedOn(from) || warned_of_front_.exchange(true)) return;
    options_.log({LogLevel::kWarning,
                  "a front passes calls on, and whoever it lets in may do everything; `moeplan token create` makes the "
                  "planner ask for tokens",
                  {{"from", from}}});
  }

  // At the level at which every call is logged, none is answered quietly.
  std::function<void(const Method&, std::string_view, double)> Quietly() {
    if (options_.log_level == LogLevel::kDebug) return nullptr;
    return [this](const Method& method, std::string_view transport, double seconds) {
      metrics_.AnsweredQuietly(method, transport, seconds);
    };
  }

  void AcknowledgedSamples(int stored, int rejected) override { metrics_.Acknowledged(stored, rejected); }
  void TookReport() override { metrics_.Reported(); }
  void AnsweredPlan(const v1::PlanResponse& plan) override {
    if (!plan_log_ || !plan.has_workload()) return;  // Plans of graphs are not run.
    const Status kept = plan_log_->Keep(plan).status();
    if (!kept.ok()) options_.log({LogLevel::kWarning, "an answered plan was not kept", {{"reason", kept.message()}}});
  }

  Metrics::Now MetricsNow() const {
    const AnswerCache::Statistics cache = cache_.statistics();
    const AgentHub::Counts agents = fleet_ ? fleet_->hub().counts() : AgentHub::Counts();
    const auto calibrations = fleet_ ? fleet_->calibrations().ended() : Calibrations::Ended();
    return {.calls_in_progress = calls_in_progress(),
            .cache_hits = cache.hits,
            .cache_misses = cache.misses,
            .cache_bytes = static_cast<double>(cache.bytes),
            .database_bytes = BytesOf(options_.store),
            .agents_attached = agents.attached,
            .agents_missing = agents.missing,
            .calibrations_done = calibrations.done,
            .calibrations_failed = calibrations.failed,
            .calibrations_cancelled = calibrations.cancelled,
            .watchers = watchers_.count(),
            .drifts = fleet_ ? fleet_->drift().counts() : decltype(Metrics::Now::drifts)()};
  }

  void WarnIfOpen(const Tls& tls) const {
    const bool reachable = options_.insecure || !tls.certificate.empty();
    if (!reachable || !tls.client_authority.empty() || access_.asks_for_tokens()) return;
    options_.log({LogLevel::kWarning,
                  "whoever reaches the planner may do everything; `moeplan token create` makes it ask for tokens",
                  {{"grpc", grpc_address_}, {"http", http_address_}}});
  }

  void WarnIfExposed(const HostPort& grpc_address, const Tls& tls) const {
    if (IsLoopback(grpc_address) || !tls.client_authority.empty()) return;
    options_.log({LogLevel::kWarning,
                  "strangers may speak HTTP/2 with gRPC, whose known weaknesses need no token; see Trust in "
                  "docs/operations.md",
                  {{"grpc", grpc_address_}}});
  }

  // Whether the caller is the first.
  bool BeginShutdown() {
    const std::scoped_lock lock(mutex_);
    if (state_ != State::kServing) return false;
    state_ = State::kEnding;
    return true;
  }

  const ServerOptions options_;
  Store store_;
  std::optional<Store> sample_store_, listing_store_;
  std::optional<PlanLog> plan_log_;
  Puts puts_;
  const std::unique_ptr<FleetDesk> fleet_;  // Null: the store may only be read.
  SampleWriter sample_writer_{sample_store_ ? *sample_store_ : store_};
  OutlierMemory outliers_;
  const Environment environment_ = {
      .store = store_,
      .puts = puts_,
      .sample_writer = sample_writer_,
      .may_name_agent = [this](const std::string& agent,
                               const std::string& caller) { return fleet_ && fleet_->MayName(agent, caller); },
      .agents = fleet_ ? &fleet_->hub() : nullptr,
      .calibrations = fleet_ ? &fleet_->calibrations() : nullptr,
      .drift = fleet_ ? &fleet_->drift() : nullptr,
      .plan_log = plan_log_ ? &*plan_log_ : nullptr,
      .outliers = &outliers_,
      .measured_steps = options_.measured_steps.get(),
      .listing_store = listing_store_ ? &*listing_store_ : nullptr};
  PlanWatchers watchers_{{.environment = environment_, .log = [this](std::string_view line) {
                            options_.log({LogLevel::kInfo, std::string(line), {}});
                          }}};
  Access access_;
  OpenStreams streams_{access_};
  AnswerCache cache_{kKeptAnswersBytes};
  Metrics metrics_{[this] { return MetricsNow(); }};
  std::string grpc_address_, http_address_;
  std::atomic<bool> warned_of_front_ = false;

  mutable std::mutex mutex_;
  std::condition_variable ended_;
  State state_ = State::kServing;  // Guarded by mutex_.
  WorkerPool workers_, appenders_;
  const Dispatcher dispatcher_{
      {.environment = environment_,
       .workers = workers_,
       .appenders = appenders_,
       .access = access_,
       .cache = cache_,
       .answered_quietly = Quietly(),
       .refused =
           [this](std::string_view path, const std::string& address, const grpc::Status& why) {
             metrics_.Refused(why);
             options_.log({LogLevel::kInfo,
                           "refused",
                           {{"method", std::string(path)}, {"peer", address}, {"message", why.error_message()}}});
           },
       .answered = [this](const Call& call, const Answer& answer) { Answered(call, answer); },
       .searched = [this](double seconds) { metrics_.Searched(seconds); },
       .worked_out =
           [this](const Method& method, const google::protobuf::Message& answer) {
             if (method.afterwards) method.afterwards(answer, *this);
           }}};
  std::unique_ptr<Upkeep> upkeep_;
  std::unique_ptr<GrpcEndpoint> grpc_;
  std::unique_ptr<http::Endpoint> http_;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options) {
  const bool trusted = options.insecure || options.tls.any();
  ASSIGN_OR_RETURN(const HostPort grpc_address, AddressToListenOn(options.grpc_address, "--grpc", trusted));
  if (!IsLoopback(grpc_address) && options.tls.client_authority.empty() && !options.exposed_http2) {
    return error::ExposedHttp2("--grpc", ToString(grpc_address));
  }
  ASSIGN_OR_RETURN(const HostPort http_address, AddressToListenOn(options.http_address, "--http", trusted));
  ASSIGN_OR_RETURN(const Tls tls, ReadTls(options.tls));
  ASSIGN_OR_RETURN(OpenedStore opened, OpenStore(options));
  auto impl = std::make_unique<Impl>(std::move(options), std::move(opened));
  RETURN_IF_ERROR(impl->Start(grpc_address, http_address, tls));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

const std::string& Server::grpc_address() const { return impl_->grpc_address(); }
const std::string& Server::http_address() const { return impl_->http_address(); }
bool Server::read_only() const { return impl_->read_only(); }
int Server::calls_in_progress() const { return impl_->calls_in_progress(); }
std::vector<Server::Work> Server::work_in_progress() const { return impl_->work_in_progress(); }
void Server::Wait() { impl_->Wait(); }
void Server::Shutdown(std::chrono::milliseconds grace) { impl_->Shutdown(grace); }

}  // namespace moeplan::service
