#include "planner/service/handlers/plan.h"

#include <optional>
#include <utility>

#include "models/links/link_model.h"
#include "models/text.h"
#include "planner/routing/plan_routed_layer.h"
#include "planner/rules/lancet.h"
#include "planner/service/deadline.h"
#include "planner/service/errors.h"
#include "planner/service/handlers/held_plan.h"
#include "planner/service/handlers/profile_selection.h"
#include "proto/convert/plan.h"
#include "proto/convert/profile.h"
#include "proto/convert/training_graph.h"
#include "proto/convert/workload.h"
#include "proto/errors.h"

namespace moeplan::service {
namespace {

Status CheckSupported(const v1::PlanRequest& request) {
  if (request.has_graph() && request.has_workload()) return error::BothAlternatives("workload", "graph");
  if (!request.has_workload() && !request.has_graph()) {
    return moeplan::error::Mismatch("workload", "nothing", "an object, or a graph");
  }
  return OkStatus();
}

StatusOr<Profile> OfferedProfile(const v1::PlanRequest& request) {
  if (!request.profile_name().empty()) return error::BothAlternatives("profile", "profileName");
  if (request.has_profile_version()) return error::BothAlternatives("profile", "profileVersion");
  StatusOr<Profile> profile = ProfileFromProto(request.profile());
  if (!profile.ok()) return profile.status().Within("profile");
  profile->version = 0;
  profile->created_at.clear();
  return profile;
}

StatusOr<int> TopOf(const v1::PlanRequest& request) {
  if (!request.has_top()) return 0;
  if (request.top() < 1) return moeplan::error::Mismatch("top", StrCat(request.top()), "at least 1, or absent for all");
  return request.top();
}

constexpr double kLongestTimeLimitS = 86400;

StatusOr<PlanBudget> BudgetOf(const v1::PlanRequest& request) {
  PlanBudget budget;
  if (request.has_budget_nodes()) budget.nodes = request.budget_nodes();
  if (budget.nodes < 1) {
    return moeplan::error::Mismatch("budgetNodes", StrCat(request.budget_nodes()), "at least 1, or absent");
  }
  if (request.has_time_limit_s() && !(request.time_limit_s() > 0 && request.time_limit_s() <= kLongestTimeLimitS)) {
    return moeplan::error::Mismatch("timeLimitS", StrCat(request.time_limit_s()),
                                    StrCat("above 0 and at most ", kLongestTimeLimitS, ", or absent"));
  }
  return budget;
}

// What is asked of the candidates of a layer; a training graph has none.
Status CheckBesideGraph(const v1::PlanRequest& request) {
  const auto refuse = [](const char* field) {
    return moeplan::error::Mismatch(field, "a value", "none beside graph, which has no candidates");
  };
  if (request.has_top()) return refuse("top");
  if (request.has_budget_nodes()) return refuse("budgetNodes");
  if (request.has_time_limit_s()) return refuse("timeLimitS");
  if (request.extrapolate()) return error::BothAlternatives("extrapolate", "graph");
  if (request.view() != v1::PlanRequest::FULL) return refuse("view");
  return OkStatus();
}

StatusOr<Profile> ProfileFor(const Environment& environment, const v1::PlanRequest& request) {
  return request.has_profile() ? OfferedProfile(request) : environment.store.LoadProfile(SelectionOf(request));
}

bool NamesProfile(const v1::PlanRequest& request) {
  return request.has_profile() || !request.profile_name().empty() || request.has_profile_version();
}

StatusOr<v1::PlanResponse> PlanTrainingGraph(const Environment& environment, const v1::PlanRequest& request,
                                             std::stop_token cancelled) {
  ASSIGN_OR_RETURN(const TrainingGraph graph, TrainingGraphFromProto(request.graph()));
  RETURN_IF_ERROR(ValidateTrainingGraph(graph));
  std::optional<Profile> profile;
  if (NamesProfile(request) || NeedsProfile(graph)) {
    ASSIGN_OR_RETURN(profile, ProfileFor(environment, request));
  }
  ASSIGN_OR_RETURN(const GraphPlanAnswer answer, PlanGraph(graph, profile ? &*profile : nullptr, std::move(cancelled)));
  return ToProto(answer);
}

// What a job needs to run.
v1::PlanResponse BestOf(const v1::PlanResponse& answer) {
  v1::PlanResponse best = BriefOf(answer);
  if (answer.has_search()) *best.mutable_search() = answer.search();
  return best;
}

}  // namespace

StatusOr<v1::PlanResponse> Plan(const Environment& environment, const v1::PlanRequest& request,
                                std::stop_token cancelled) {
  RETURN_IF_ERROR(CheckSupported(request));
  if (request.has_graph()) {
    RETURN_IF_ERROR(CheckBesideGraph(request));
    return PlanTrainingGraph(environment, request, std::move(cancelled));
  }
  PlanOptions options;
  ASSIGN_OR_RETURN(options.top, TopOf(request));
  ASSIGN_OR_RETURN(PlanBudget budget, BudgetOf(request));
  ASSIGN_OR_RETURN(const Workload workload, WorkloadFromProto(request.workload()));
  ASSIGN_OR_RETURN(const Profile profile, ProfileFor(environment, request));
  std::optional<Deadline> deadline;
  if (request.has_time_limit_s()) budget.stop.out_of_time = deadline.emplace(request.time_limit_s()).token();
  budget.stop.cancelled = std::move(cancelled);
  std::optional<LinkModel> links;
  if (request.extrapolate()) options.links = &links.emplace(profile);
  ASSIGN_OR_RETURN(const PlanAnswer answer, PlanRoutedLayer(workload, profile, options, budget));
  if (request.view() == v1::PlanRequest::BEST) return BestOf(ToProto(answer));
  return ToProto(answer);
}

}  // namespace moeplan::service
