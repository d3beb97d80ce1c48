#include "planner/service/handlers/plan.h"

#include <optional>
#include <utility>

#include "planner/service/errors.h"
#include "planner/service/handlers/held_plan.h"
#include "planner/service/handlers/plan_question.h"
#include "planner/service/handlers/profile_selection.h"
#include "proto/convert/profile.h"

namespace moeplan::service {
namespace {

StatusOr<Profile> OfferedProfile(const v1::PlanRequest& request) {
  if (!request.profile_name().empty()) return error::BothAlternatives("profile", "profileName");
  if (request.has_profile_version()) return error::BothAlternatives("profile", "profileVersion");
  StatusOr<Profile> profile = ProfileFromProto(request.profile());
  if (!profile.ok()) return profile.status().Within("profile");
  profile->version = 0;
  profile->created_at.clear();
  return profile;
}

StatusOr<Profile> ProfileFor(const Environment& environment, const v1::PlanRequest& request) {
  return request.has_profile() ? OfferedProfile(request) : environment.store.LoadProfile(SelectionOf(request));
}

bool NamesProfile(const v1::PlanRequest& request) {
  return request.has_profile() || !request.profile_name().empty() || request.has_profile_version();
}

// Keeps what a job needs to run.
v1::PlanResponse BestOf(const v1::PlanResponse& answer) {
  v1::PlanResponse best = BriefOf(answer);
  if (answer.has_search()) *best.mutable_search() = answer.search();
  return best;
}

}  // namespace

StatusOr<v1::PlanResponse> Plan(const Environment& environment, const v1::PlanRequest& request,
                                std::stop_token cancelled) {
  ASSIGN_OR_RETURN(const PlanQuestion question, QuestionOf(request));
  std::optional<Profile> profile;
  if (NamesProfile(request) || NeedsProfile(question)) {
    ASSIGN_OR_RETURN(profile, ProfileFor(environment, request));
  }
  ASSIGN_OR_RETURN(v1::PlanResponse answer, AnswerTo(question, profile ? &*profile : nullptr, std::move(cancelled)));
  return request.view() == v1::PlanRequest::BEST ? BestOf(answer) : std::move(answer);
}

}  // namespace moeplan::service
