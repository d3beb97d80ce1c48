// ProfileService.PutProfile.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/profile_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// Stores the profile as the next version of its name, unless the newest says the same. A retry answers the version that
// the first became, after a restart, too. A known id with another profile is kInvalidInput.
StatusOr<v1::PutProfileResponse> PutProfile(const Environment& environment, const v1::PutProfileRequest& request,
                                            std::stop_token cancelled);

}  // namespace moeplan::service
