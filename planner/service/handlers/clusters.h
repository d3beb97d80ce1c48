// ProfileService.ListClusters.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/profile_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// Counted by the store: no curve and no sample is read.
StatusOr<v1::ListClustersResponse> ListClusters(const Environment& environment, const v1::ListClustersRequest& request,
                                                std::stop_token cancelled);

}  // namespace moeplan::service
