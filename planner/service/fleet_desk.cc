#include "planner/service/fleet_desk.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

namespace moeplan::service {
namespace {

HubOptions HubOptionsOf(const AgentServiceOptions& options, AgentNames& names,
                        const std::function<void(std::string_view line)>& log) {
  HubOptions hub = {.registry = {.version = options.version, .lost_after_s = options.lost_after_s},
                    .heartbeat_s = options.heartbeat_s};
  hub.may_claim = [&names](const std::string& name, const std::string& caller) { return names.MayClaim(name, caller); };
  hub.claim = [&names](const std::string& name, const std::string& caller) { return names.Claim(name, caller); };
  if (log) hub.log = log;
  return hub;
}

void Beat(AgentHub& hub, double period_s, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  const std::chrono::duration<double> period(period_s);
  while (!never.wait_for(lock, stop, period, [] { return false; }) && !stop.stop_requested()) hub.Tick();
}

}  // namespace

FleetDesk::FleetDesk(AgentServiceOptions options, Store store, Puts& puts, DriftOptions drift_options,
                     std::function<void(std::string_view line)> log,
                     std::function<bool(const std::string& token)> is_token)
    : store_(std::move(store)), names_(store_, std::move(is_token)), hub_(HubOptionsOf(options, names_, log)) {
  Calibrations::Uses uses = {.store = store_, .puts = puts, .hub = hub_, .driver = std::move(options.driver)};
  if (log) uses.log = log;
  uses.ended = [this](const CalibrationJob& job) { drift_->Ended(job); };
  calibrations_.emplace(std::move(uses));
  DriftDesk::Uses drift = {
      .store = store_, .puts = puts, .calibrations = *calibrations_, .options = std::move(drift_options)};
  if (log) drift.log = std::move(log);
  drift_.emplace(std::move(drift));
  heartbeats_ =
      std::jthread([this, period_s = options.heartbeat_s](const std::stop_token& stop) { Beat(hub_, period_s, stop); });
}

FleetDesk::~FleetDesk() { Shutdown(); }

Status FleetDesk::Resume() {
  RETURN_IF_ERROR(names_.Load());
  RETURN_IF_ERROR(drift_->Resume());
  return calibrations_->Resume();
}

void FleetDesk::Shutdown() {
  calibrations_->Stop();
  hub_.Shutdown();
}

}  // namespace moeplan::service
