// ProfileService.FitProfile.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/profile_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// Fits all samples that are stored under the name (samples/fit_together.h) and stores the profile as its next version,
// unless the newest says the same. A retry answers the version that the first became, after a restart, too.
StatusOr<v1::FitProfileResponse> FitProfile(const Environment& environment, const v1::FitProfileRequest& request,
                                            std::stop_token cancelled);

}  // namespace moeplan::service
