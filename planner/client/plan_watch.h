// The plan of a workload for as long as a job runs: told of each better one (PlannerService.WatchPlan).
//
// A connection that breaks is opened again, after a pause that doubles up to half a minute, with the plan that is held:
// what was decided meanwhile is told then, once. A planner that is away costs the job nothing but news.
//
// Threads: the callbacks come on a thread of the watch's own, one at a time, and must not destroy the watch. Must not
// be carried across fork().
#pragma once

#include <functional>
#include <memory>

#include "models/status.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/client/connect_options.h"

namespace moeplan::client {

struct PlanWatchOptions {
  ConnectOptions planner;        // Its deadline bounds connecting; the watch has none.
  v1::WatchPlanRequest request;  // With what the job holds, where it does.
  double first_pause_s = 1;      // Before the first retry. Above 0.
  std::function<void(const v1::WatchPlanResponse& response)> changed;
  // Each time that the planner does not answer, with why. kInvalidInput, kPermissionDenied and kInfeasible are its
  // refusal, which ends the watch.
  std::function<void(const Status& why)> away = [](const Status&) {};
};

class PlanWatch {
 public:
  explicit PlanWatch(PlanWatchOptions options);
  // Ends the watch; waits for the callback that runs.
  ~PlanWatch();
  PlanWatch(const PlanWatch&) = delete;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace moeplan::client
