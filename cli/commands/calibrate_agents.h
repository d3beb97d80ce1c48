// `moeplan calibrate --planner`: the agents of a planner measure.
#pragma once

#include <string>
#include <vector>

#include "models/cost/profile.h"
#include "models/status.h"
#include "planner/client/connect_options.h"

namespace moeplan::cli {

struct AgentCalibration {
  client::ConnectOptions planner;
  std::string cluster, profile_name;
  std::string layouts;  // GRID.json; empty: what the cluster's layouts need.
  std::vector<std::string> models;  // By file or name; without `layouts`.
  double budget_s = 60;
  double wait_limit_s = 3600;
};

// Asks for the calibration and waits for its end, also while the planner is restarted; the profile that came of it.
StatusOr<Profile> CalibrateWithAgents(const AgentCalibration& wanted);

}  // namespace moeplan::cli
