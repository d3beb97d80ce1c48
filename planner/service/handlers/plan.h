// PlannerService.Plan.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// The answer of PlanRoutedLayer to the workload, or of PlanGraph to the training graph, with the profile that the
// request offers or names; with `extrapolate`, of a LinkModel of that profile beside it. A profile that comes with the
// request counts as one from a file: version 0. A graph that has every time, in a request that names no profile, is
// answered without one. kNotFound says how to come by a profile.
StatusOr<v1::PlanResponse> Plan(const Environment& environment, const v1::PlanRequest& request,
                                std::stop_token cancelled);

}  // namespace moeplan::service
