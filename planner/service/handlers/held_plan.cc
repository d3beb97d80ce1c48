#include "planner/service/handlers/held_plan.h"

#include "models/measurement/candidates.h"
#include "models/text.h"
#include "proto/convert/plan.h"
#include "proto/convert/workload.h"
#include "proto/errors.h"

namespace moeplan::service {
namespace {

constexpr int kMostTasks = 100'000;

Status CheckSize(const v1::Plan& plan, const std::string& path) {
  const auto at_most = [&](const char* field, int found, int most) {
    return found <= most ? OkStatus()
                         : moeplan::error::Mismatch(FieldPath(path, field), StrCat(found), StrCat("at most ", most));
  };
  RETURN_IF_ERROR(at_most("chunks", plan.chunks(), kMostChunks));
  RETURN_IF_ERROR(at_most("partitionDegree", plan.partition_degree(), kMostChunks));
  RETURN_IF_ERROR(at_most("order", plan.order_size(), kMostTasks));
  return at_most("gradients.slices", plan.gradients().slices_size(), kMostTasks);
}

}  // namespace

StatusOr<moeplan::Plan> SizedPlanFromProto(const v1::Plan& plan, const std::string& path) {
  RETURN_IF_ERROR(CheckSize(plan, path));
  return PlanFromProto(plan, path);
}

v1::PlanResponse BriefOf(const v1::PlanResponse& answer) {
  v1::PlanResponse brief;
  if (answer.has_workload()) *brief.mutable_workload() = answer.workload();
  brief.set_profile_name(answer.profile_name());
  brief.set_profile_version(answer.profile_version());
  if (answer.has_best()) {
    *brief.mutable_best() = answer.best();
    brief.mutable_best()->clear_timeline();
  }
  return brief;
}

StatusOr<HeldPlan> HeldPlanFromProto(const v1::PlanResponse& answer, const std::string& path) {
  if (!answer.has_workload()) {
    return moeplan::error::Mismatch(FieldPath(path, "workload"), "nothing", "the workload that was planned");
  }
  if (!answer.has_best()) return moeplan::error::Mismatch(FieldPath(path, "best"), "nothing", "the plan that runs");
  HeldPlan held = {.profile_name = answer.profile_name(), .profile_version = answer.profile_version()};
  ASSIGN_OR_RETURN(held.workload, WorkloadFromProto(answer.workload(), FieldPath(path, "workload")));
  ASSIGN_OR_RETURN(held.plan, SizedPlanFromProto(answer.best(), FieldPath(path, "best")));
  return held;
}

}  // namespace moeplan::service
