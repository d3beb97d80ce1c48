#include "planner/service/handlers/plan.h"

#include <utility>

#include "models/text.h"
#include "planner/search/plan_layer.h"
#include "planner/service/errors.h"
#include "planner/service/handlers/profile_selection.h"
#include "proto/convert/plan.h"
#include "proto/convert/profile.h"
#include "proto/convert/workload.h"
#include "proto/errors.h"

namespace moeplan::service {
namespace {

Status CheckSupported(const v1::PlanRequest& request) {
  if (request.has_graph() && request.has_workload()) return error::BothAlternatives("workload", "graph");
  if (request.has_graph()) return error::NotInThisVersion("graph");
  if (request.has_budget_nodes()) return error::NotInThisVersion("budgetNodes");
  if (request.has_time_limit_s()) return error::NotInThisVersion("timeLimitS");
  if (!request.has_workload()) return moeplan::error::Mismatch("workload", "nothing", "an object");
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

}  // namespace

StatusOr<v1::PlanResponse> Plan(const Environment& environment, const v1::PlanRequest& request,
                                std::stop_token cancelled) {
  RETURN_IF_ERROR(CheckSupported(request));
  ASSIGN_OR_RETURN(const int top, TopOf(request));
  ASSIGN_OR_RETURN(const Workload workload, WorkloadFromProto(request.workload()));
  ASSIGN_OR_RETURN(const Profile profile, request.has_profile() ? OfferedProfile(request)
                                                                : environment.store.LoadProfile(SelectionOf(request)));
  ASSIGN_OR_RETURN(const PlanAnswer answer,
                   PlanLayer(workload, profile, {.top = top, .cancelled = std::move(cancelled)}));
  return ToProto(answer);
}

}  // namespace moeplan::service
