#include "planner/service/handlers/plan.h"

#include <optional>
#include <utility>

#include "models/links/link_model.h"
#include "models/text.h"
#include "planner/rules/lancet.h"
#include "planner/search/plan_layer.h"
#include "planner/service/errors.h"
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
  if (request.has_budget_nodes()) return error::NotInThisVersion("budgetNodes");
  if (request.has_time_limit_s()) return error::NotInThisVersion("timeLimitS");
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

}  // namespace

StatusOr<v1::PlanResponse> Plan(const Environment& environment, const v1::PlanRequest& request,
                                std::stop_token cancelled) {
  RETURN_IF_ERROR(CheckSupported(request));
  ASSIGN_OR_RETURN(const int top, TopOf(request));
  if (request.has_graph()) {
    if (top > 0) return moeplan::error::Mismatch("top", StrCat(top), "none beside graph, which has no candidates");
    if (request.extrapolate()) return error::BothAlternatives("extrapolate", "graph");
    return PlanTrainingGraph(environment, request, std::move(cancelled));
  }
  ASSIGN_OR_RETURN(const Workload workload, WorkloadFromProto(request.workload()));
  ASSIGN_OR_RETURN(const Profile profile, ProfileFor(environment, request));
  std::optional<LinkModel> links;
  if (request.extrapolate()) links.emplace(profile);
  ASSIGN_OR_RETURN(const PlanAnswer answer,
                   PlanLayer(workload, profile,
                             {.top = top, .cancelled = std::move(cancelled), .links = links ? &*links : nullptr}));
  return ToProto(answer);
}

}  // namespace moeplan::service
