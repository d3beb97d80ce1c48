// PlannerService.ReportRun and ListDrifts.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/planner_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// Holds the run against the newest version of its plan's profile, keeps it in the store (one a minute of each plan:
// the test for drift sees them all) and hands it to the test. kPermissionDenied: the store may only be read.
StatusOr<v1::ReportRunResponse> ReportRun(const Environment& environment, const v1::ReportRunRequest& request,
                                          std::stop_token cancelled);

StatusOr<v1::ListDriftsResponse> ListDrifts(const Environment& environment, const v1::ListDriftsRequest& request,
                                            std::stop_token cancelled);

}  // namespace moeplan::service
