#include "planner/service/server.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "db/store.h"
#include "models/check.h"
#include "models/text.h"
#include "planner/service/fleet/fleet_desk.h"
#include "planner/service/grpc_endpoint.h"
#include "planner/service/handlers/environment.h"
#include "planner/service/http_endpoint.h"
#include "planner/service/listen.h"
#include "planner/service/plan_log.h"
#include "planner/service/worker_pool.h"

namespace moeplan {
namespace {

struct OpenedStore {
  Store store;
  std::optional<service::PlanLog> plan_log;  // Absent: the store may only be read.
  std::optional<Store> fleet_store;          // Likewise.
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
  ASSIGN_OR_RETURN(service::PlanLog plan_log, service::PlanLog::Open(options.store));
  ASSIGN_OR_RETURN(Store fleet_store, Store::Open(options.store, {.busy_timeout = options.store_busy_timeout}));
  return OpenedStore{
      .store = *std::move(store), .plan_log = std::move(plan_log), .fleet_store = std::move(fleet_store)};
}

std::unique_ptr<service::FleetDesk> FleetOf(const ServerOptions& options, std::optional<Store> store,
                                            service::Puts& puts) {
  if (!store) return nullptr;
  return std::make_unique<service::FleetDesk>(options.agents, *std::move(store), puts, options.log);
}

int WorkersOf(const ServerOptions& options) {
  if (options.workers > 0) return options.workers;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

class Server::Impl {
 public:
  Impl(ServerOptions options, OpenedStore opened)
      : options_(std::move(options)),
        store_(std::move(opened.store)),
        plan_log_(std::move(opened.plan_log)),
        fleet_(FleetOf(options_, std::move(opened.fleet_store), puts_)),
        workers_(std::make_unique<service::WorkerPool>(WorkersOf(options_), options_.queue_capacity)) {}

  ~Impl() { Shutdown(std::chrono::milliseconds(0)); }

  Status Start(const HostPort& grpc_address, const HostPort& http_address) {
    ASSIGN_OR_RETURN(grpc_, service::GrpcEndpoint::Start(grpc_address, Uses()));
    grpc_address_ = ToString(grpc_->address());
    ASSIGN_OR_RETURN(http_, service::HttpEndpoint::Start(http_address, grpc_address_));
    http_address_ = ToString(http_->address());
    return fleet_ ? fleet_->Resume() : OkStatus();
  }

  const std::string& grpc_address() const { return grpc_address_; }
  const std::string& http_address() const { return http_address_; }
  bool read_only() const { return !plan_log_; }

  int calls_in_progress() const {
    const std::scoped_lock lock(mutex_);
    return workers_ ? workers_->in_progress() : 0;
  }

  void Wait() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return state_ == State::kEnded; });
  }

  void Shutdown(std::chrono::milliseconds grace) {
    if (!BeginShutdown()) return Wait();
    if (http_) http_->SetNotServing();
    if (fleet_) fleet_->Shutdown();
    if (grpc_) grpc_->Shutdown(grace);
    EndWorkers();
    http_.reset();
    const std::scoped_lock lock(mutex_);
    state_ = State::kEnded;
    ended_.notify_all();
  }

 private:
  enum class State { kServing, kEnding, kEnded };

  service::GrpcEndpoint::Uses Uses() {
    return {.environment = environment_, .workers = *workers_, .planned = [this](const v1::PlanResponse& answer) {
              KeepPlan(answer);
            }};
  }

  void KeepPlan(const v1::PlanResponse& answer) {
    if (!plan_log_ || !answer.has_workload()) return;  // Plans of graphs are not run.
    const Status kept = plan_log_->Keep(answer);
    if (!kept.ok()) Log(StrCat("an answered plan was not kept: ", kept.message()));
  }

  void Log(const std::string& line) const {
    if (options_.log) options_.log(line);
  }

  // Whether the caller is the first.
  bool BeginShutdown() {
    const std::scoped_lock lock(mutex_);
    if (state_ != State::kServing) return false;
    state_ = State::kEnding;
    return true;
  }

  // Waits for what they still keep of answered plans, without the lock.
  void EndWorkers() {
    std::unique_lock lock(mutex_);
    std::unique_ptr<service::WorkerPool> workers = std::move(workers_);
    lock.unlock();
    workers.reset();
  }

  const ServerOptions options_;
  Store store_;
  std::optional<service::PlanLog> plan_log_;
  service::Puts puts_;
  const std::unique_ptr<service::FleetDesk> fleet_;  // Null: the store may only be read.
  const service::Environment environment_ = {.store = store_,
                                             .puts = puts_,
                                             .agents = fleet_ ? &fleet_->hub() : nullptr,
                                             .calibrations = fleet_ ? &fleet_->calibrations() : nullptr};
  std::unique_ptr<service::GrpcEndpoint> grpc_;
  std::unique_ptr<service::HttpEndpoint> http_;
  std::string grpc_address_, http_address_;

  mutable std::mutex mutex_;
  std::condition_variable ended_;
  State state_ = State::kServing;                 // Guarded by mutex_.
  std::unique_ptr<service::WorkerPool> workers_;  // Set and cleared under mutex_.
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options) {
  ASSIGN_OR_RETURN(const HostPort grpc_address, service::AddressToListenOn(options.grpc_address, "--grpc"));
  ASSIGN_OR_RETURN(const HostPort http_address, service::AddressToListenOn(options.http_address, "--http"));
  ASSIGN_OR_RETURN(OpenedStore opened, OpenStore(options));
  auto impl = std::make_unique<Impl>(std::move(options), std::move(opened));
  RETURN_IF_ERROR(impl->Start(grpc_address, http_address));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

const std::string& Server::grpc_address() const { return impl_->grpc_address(); }
const std::string& Server::http_address() const { return impl_->http_address(); }
bool Server::read_only() const { return impl_->read_only(); }
int Server::calls_in_progress() const { return impl_->calls_in_progress(); }
void Server::Wait() { impl_->Wait(); }
void Server::Shutdown(std::chrono::milliseconds grace) { impl_->Shutdown(grace); }

}  // namespace moeplan
