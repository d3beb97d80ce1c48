// What whoever starts a server may say of its agents.
#pragma once

#include <string>

#include "planner/service/fleet/calibration_driver.h"

namespace moeplan::service {

struct AgentServiceOptions {
  double heartbeat_s = 5;    // How often both sides say that they live. Above 0.
  double lost_after_s = 15;  // Silence after which an agent is taken for dead. Above heartbeat_s.
  std::string version = MOEPLAN_VERSION;
  CalibrationDriver driver;  // Empty: calibrations are refused.
};

}  // namespace moeplan::service
