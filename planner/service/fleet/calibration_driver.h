// What a server needs to know of calibrations without measuring itself: whoever starts it brings the driver, which
// measures with the ranks that it is given.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "models/cost/samples.h"
#include "models/model/model_config.h"
#include "models/status.h"
#include "models/workload/workload.h"
#include "planner/service/fleet/relayed_ranks.h"

namespace moeplan::service {

struct CalibrationWork {
  std::string name;                // Of the samples.
  double budget_s = 0;             // That is left. Above 0.
  std::vector<Workload> grid;      // Not resolved. With `operations` empty too: what the cluster's layouts need.
  std::vector<ModelConfig> models;  // Whose steps are to be priced on the cluster; without grid and operations.
  std::vector<Sample> operations;  // To be measured at their sizes, and nothing else; the grid lends kernels shapes.
  std::vector<Sample> taken;       // What was measured before; it counts.
  // Keeps a sample for good; called for each as it is taken, with the cluster that was measured (peak not known). An
  // error ends the work.
  std::function<Status(const Cluster& cluster, const Sample& sample)> keep;
  // `done`: share of budget_s that is spent; `what` is being measured.
  std::function<void(double done, const std::string& what)> progress;
  std::function<void(const std::string& line)> log;
  std::stop_token stop;  // Ranks are lost as well, so that it need not be looked at while one is waited for.
};

// A driver measures with `ranks`, which it starts and ends. OK: all is measured, or the budget is spent.
// kPeerLost, kDeadlineExceeded and kUnavailable may go well with new ranks. Called on a thread of its own.
using CalibrationDriver = std::function<Status(RelayedRanks ranks, const CalibrationWork& work)>;

}  // namespace moeplan::service
