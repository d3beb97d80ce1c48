// Plans for a training job that goes on whether its planner is there or not.
//
// A plan comes from the planner or, when it does not answer in time, is what it last answered to the same question,
// kept in a folder, or else the baseline, which needs no measurement: never later than the deadline, and always with
// where it comes from and why. After a failure the planner is left alone for a while, so that a planner that is away
// costs a job one deadline in `retry_after_s`, not one for each layer.
//
// Threads: any thread may call any method; calls take turns. Must not be carried across fork() once it has been asked.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "models/status.h"
#include "models/workload/workload.h"
#include "moeplan/v1/plan.pb.h"
#include "planner/client/connect_options.h"

namespace moeplan::client {

enum class PlanOrigin {
  kPlanner,   // Answered just now.
  kKept,      // Answered before; JobPlan::answered_at says when.
  kBaseline,  // By nobody: BASELINE_TP where ESP = MP, else BASELINE, without times.
};

struct JobPlan {
  v1::PlanResponse answer;  // With `best`.
  PlanOrigin origin = PlanOrigin::kPlanner;
  std::string why;          // Why the planner did not answer; empty when it did.
  std::string answered_at;  // RFC 3339; empty for a baseline.
};

struct JobPlannerOptions {
  ConnectOptions planner;        // Its deadline bounds the whole of Plan.
  Cluster cluster;               // The job's nodes and GPUs, for a baseline.
  std::filesystem::path folder;  // Of kept plans, made when needed; empty: $XDG_CACHE_HOME/moeplan or ~/.cache/moeplan.
  double retry_after_s = 30;     // How long a planner that failed is left alone. At least 0.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

class JobPlanner {
 public:
  explicit JobPlanner(JobPlannerOptions options);
  ~JobPlanner();

  // kInvalidInput or kInfeasible: the question is wrong, and no planner would answer it. All other troubles lead to a
  // kept plan or the baseline.
  StatusOr<JobPlan> Plan(const v1::PlanRequest& request);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moeplan::client
