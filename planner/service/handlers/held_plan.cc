#include "planner/service/handlers/held_plan.h"

#include "proto/convert/plan.h"
#include "proto/convert/workload.h"
#include "proto/errors.h"

namespace moeplan::service {

StatusOr<HeldPlan> HeldPlanFromProto(const v1::PlanResponse& answer, const std::string& path) {
  if (!answer.has_workload()) {
    return moeplan::error::Mismatch(FieldPath(path, "workload"), "nothing", "the workload that was planned");
  }
  if (!answer.has_best()) return moeplan::error::Mismatch(FieldPath(path, "best"), "nothing", "the plan that runs");
  HeldPlan held = {.profile_name = answer.profile_name(), .profile_version = answer.profile_version()};
  ASSIGN_OR_RETURN(held.workload, WorkloadFromProto(answer.workload(), FieldPath(path, "workload")));
  ASSIGN_OR_RETURN(held.plan, PlanFromProto(answer.best(), FieldPath(path, "best")));
  return held;
}

}  // namespace moeplan::service
