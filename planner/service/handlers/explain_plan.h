// PlannerService.ExplainPlan.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// ExplainPlan of planner/search with a stored profile. kInvalidInput: the workload or the plan is wrong, or the plan is
// none of that workload. kNotFound: there is no such profile, or it lacks a cost.
StatusOr<v1::ExplainPlanResponse> ExplainPlan(const Environment& environment, const v1::ExplainPlanRequest& request,
                                              std::stop_token cancelled);

}  // namespace moeplan::service
