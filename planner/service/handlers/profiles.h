// ProfileService: reading what is stored.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/profile_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// A page of one name may hold fewer than it could while others follow; an empty page is the last.
StatusOr<v1::ListProfilesResponse> ListProfiles(const Environment& environment, const v1::ListProfilesRequest& request,
                                                std::stop_token cancelled);

StatusOr<v1::GetProfileResponse> GetProfile(const Environment& environment, const v1::GetProfileRequest& request,
                                            std::stop_token cancelled);

}  // namespace moeplan::service
