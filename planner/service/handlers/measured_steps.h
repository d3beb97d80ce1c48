// PlannerService.ListMeasuredSteps.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// What the planner was given when it started.
StatusOr<v1::ListMeasuredStepsResponse> ListMeasuredSteps(const Environment& environment,
                                                          const v1::ListMeasuredStepsRequest& request,
                                                          std::stop_token cancelled);

}  // namespace moeplan::service
