// ProfileService.FitProfile.
#pragma once

#include <span>
#include <stop_token>
#include <string>

#include "models/status.h"
#include "moeplan/v1/profile_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// Fits all samples that are stored under the name and stores the profile as its next version, unless the newest says
// the same: fits are the same to the bit for the same samples. A retry answers the version that the first became, after
// a restart, too.
StatusOr<v1::FitProfileResponse> FitProfile(const Environment& environment, const v1::FitProfileRequest& request,
                                            std::stop_token cancelled);

// The fit of all their samples together, on the cluster of the first. Requires at least one.
StatusOr<Profile> FitTogether(std::span<const Calibration> calibrations);

// The same for `request`, unique among all requests that make profiles. Call it with environment.puts.in_turn held.
StatusOr<ProfileVersion> FitStored(const Environment& environment, const std::string& request,
                                   const std::string& profile_name);

}  // namespace moeplan::service
