// PlannerService.ImportModel.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// A model without experts has no workload.
StatusOr<v1::ImportModelResponse> ImportModel(const Environment& environment, const v1::ImportModelRequest& request,
                                              std::stop_token cancelled);

}  // namespace moeplan::service
