// A planner, and the command line where the profile is a file or a database, answer a PlanRequest by what is here.
#pragma once

#include <optional>
#include <stop_token>
#include <variant>

#include "models/cost/profile.h"
#include "models/status.h"
#include "models/training/training_graph.h"
#include "models/workload/workload.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/lancet/schedule.h"
#include "planner/search/plan_layer.h"

namespace moeplan::service {

// What a request asks, but for the profile; it was checked.
struct PlanQuestion {
  std::variant<Workload, TrainingGraph> about;
  // Asked of training graphs.
  planner::LancetOptions lancet;
  // The rest is asked of workloads; a training graph leaves it as it is.
  planner::PlanOptions options;
  int budget_nodes = planner::kDefaultBudgetNodes;
  std::optional<double> time_limit_s;
  bool extrapolate = false;
};

// kInvalidInput begins with the request's field that is wrong. Profiles that it names or offers are not looked at.
// Pure.
StatusOr<PlanQuestion> QuestionOf(const v1::PlanRequest& request);

// Returns false for a training graph that has every time.
bool NeedsProfile(const PlanQuestion& question);

// Answers a workload with PlanRoutedLayer, or a training graph with PlanGraph, in full. `profile` may be null for
// a graph. Errors are those of these two.
StatusOr<v1::PlanResponse> AnswerTo(const PlanQuestion& question, const Profile* profile,
                                    std::stop_token cancelled = {});

}  // namespace moeplan::service
