// ProfileService.ListRejectedSamples.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/profile_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

StatusOr<v1::ListRejectedSamplesResponse> ListRejectedSamples(const Environment& environment,
                                                              const v1::ListRejectedSamplesRequest& request,
                                                              std::stop_token cancelled);

}  // namespace moeplan::service
