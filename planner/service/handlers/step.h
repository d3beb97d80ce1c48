// PlannerService.Step.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// Prices one step of a given layout (planner/layout/price_layout.h). kInvalidInput names the field or the rule that the
// layout breaks, kUnimplemented what is not priced yet; kNotFound: no such profile. Thread-safe.
StatusOr<v1::StepResponse> Step(const Environment& environment, const v1::StepRequest& request,
                                std::stop_token cancelled);

}  // namespace moeplan::service
