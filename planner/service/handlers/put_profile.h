// ProfileService.PutProfile.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/profile_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// Stores the profile as the next version of its name. The store does not keep request ids of profiles, so a retry is
// known by the Puts of this process; after a restart it is known when its profile is still the newest of that name,
// which is why bringing the newest profile again makes no new version. A known id with another profile is
// kInvalidInput.
StatusOr<v1::PutProfileResponse> PutProfile(const Environment& environment, const v1::PutProfileRequest& request,
                                            std::stop_token cancelled);

}  // namespace moeplan::service
