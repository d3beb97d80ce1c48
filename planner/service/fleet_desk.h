// All that a server has of a fleet: its end of the agents, their heartbeats, the calibrations, and the watch on drift.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>

#include "db/store.h"
#include "models/status.h"
#include "planner/service/drift/drift_desk.h"
#include "planner/service/fleet/agent_hub.h"
#include "planner/service/fleet/agent_names.h"
#include "planner/service/fleet/agent_service_options.h"
#include "planner/service/fleet/calibrations.h"
#include "planner/service/puts.h"

namespace moeplan::service {

class FleetDesk {
 public:
  // `store` is used from the calibrations' threads, so one of its own keeps them out of the way of calls.
  // `is_token` as in AgentNames.
  FleetDesk(AgentServiceOptions options, Store store, Puts& puts, DriftOptions drift,
            std::function<void(std::string_view line)> log, std::function<bool(const std::string& token)> is_token);
  ~FleetDesk();
  FleetDesk(const FleetDesk&) = delete;

  AgentHub& hub() { return hub_; }
  // Whether that caller may say that the agent of that name took a sample.
  bool MayName(const std::string& agent, const std::string& caller) const {
    return caller.empty() ? hub_.Knows(agent) : names_.Has(agent, caller);
  }
  Calibrations& calibrations() { return *calibrations_; }
  DriftDesk& drift() { return *drift_; }

  // Goes on with what had not ended; before anybody can ask for more.
  Status Resume();
  // Stops calibrations and ends all connections, so that the transport can end.
  void Shutdown();

 private:
  Store store_;
  AgentNames names_;
  AgentHub hub_;
  std::optional<DriftDesk> drift_;  // Made after the calibrations that tell it of their ends, gone after them.
  std::optional<Calibrations> calibrations_;
  std::jthread heartbeats_;
};

}  // namespace moeplan::service
