#include "planner/service/handlers/explain_plan.h"

#include <utility>

#include "models/cost/operation.h"
#include "models/routing/expert_load.h"
#include "planner/search/explain_plan.h"
#include "planner/search/plan_layer.h"
#include "planner/service/errors.h"
#include "planner/service/handlers/held_plan.h"
#include "planner/service/handlers/profile_selection.h"
#include "proto/convert/plan.h"
#include "proto/convert/workload.h"
#include "proto/errors.h"

namespace moeplan::service {
namespace {

StatusOr<moeplan::Plan> PlanToExplain(const v1::ExplainPlanRequest& request, const Workload& workload,
                                      const Profile& profile, std::stop_token cancelled) {
  if (!request.has_plan())
    return planner::PlanBaseline(workload, profile, {.cancelled = std::move(cancelled), .out_of_time = {}});
  return SizedPlanFromProto(request.plan(), "plan");
}

}  // namespace

StatusOr<v1::ExplainPlanResponse> ExplainPlan(const Environment& environment, const v1::ExplainPlanRequest& request,
                                              std::stop_token cancelled) {
  if (!request.has_workload()) return moeplan::error::Mismatch("workload", "nothing", "an object");
  ASSIGN_OR_RETURN(const Workload asked, WorkloadFromProto(request.workload()));
  ASSIGN_OR_RETURN(const Profile profile, environment.store.LoadProfile(SelectionOf(request)));
  ASSIGN_OR_RETURN(Workload workload, ResolveWorkload(asked, profile.cluster));
  workload = WithExpectedSlots(std::move(workload));
  ASSIGN_OR_RETURN(const moeplan::Plan plan, PlanToExplain(request, workload, profile, cancelled));
  if (cancelled.stop_requested()) return error::CallerLeft();
  const StatusOr<planner::ExplainedPlan> explained =
      planner::ExplainPlan(plan, workload, profile, {.cancelled = cancelled, .out_of_time = {}});
  if (cancelled.stop_requested()) return error::CallerLeft();
  if (explained.status().code() == StatusCode::kInvalidInput) return explained.status().Within("plan");
  RETURN_IF_ERROR(explained.status());
  v1::ExplainPlanResponse response;
  response.set_profile_name(profile.name);
  response.set_profile_version(profile.version);
  *response.mutable_plan() = moeplan::ToProto(explained->plan);
  for (size_t i = 0; i < explained->tasks.size(); ++i) {
    const planner::ExplainedTask& task = explained->tasks[i];
    v1::ExplainedTask& message = *response.add_tasks();
    message.set_task(explained->plan.timeline[i].task);
    if (task.cost) message.set_cost(Describe(*task.cost));
    message.set_foretold(task.foretold);
    message.set_size(task.size);
    message.set_alone_s(task.alone_s);
    if (task.released_by != kNoTask) message.set_released_by(explained->plan.timeline[task.released_by].task);
    message.set_critical(task.critical);
  }
  for (const std::string& warning : explained->warnings) response.add_warnings(warning);
  return response;
}

}  // namespace moeplan::service
