// PlannerService.ListRuns and GetRun.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// The plan of each run is what was answered, where that and the run's report can be read; else its schedule alone. A
// report that names its knobs is that candidate's, any other the first plan of its schedule, the best before others.
StatusOr<v1::ListRunsResponse> ListRuns(const Environment& environment, const v1::ListRunsRequest& request,
                                        std::stop_token cancelled);

StatusOr<v1::GetRunResponse> GetRun(const Environment& environment, const v1::GetRunRequest& request,
                                    std::stop_token cancelled);

}  // namespace moeplan::service
