// PlannerService.RankLayouts.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// What `moeplan layout` prints. A caller who leaves is noticed before the next batch of layers. Without a layout that
// fits the answer is empty and says how much memory is missing.
StatusOr<v1::RankLayoutsResponse> RankLayouts(const Environment& environment, const v1::RankLayoutsRequest& request,
                                              std::stop_token cancelled);

}  // namespace moeplan::service
