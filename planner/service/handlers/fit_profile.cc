#include "planner/service/handlers/fit_profile.h"

#include <optional>
#include <span>
#include <vector>

#include "models/fit/fit.h"
#include "planner/service/errors.h"
#include "planner/service/puts.h"
#include "proto/errors.h"

namespace moeplan::service {
StatusOr<Profile> FitTogether(std::span<const Calibration> calibrations) {
  SampleSet all = calibrations.front().samples;
  for (const Calibration& calibration : calibrations.subspan(1)) {
    // Commands that write to the database themselves may have mixed them.
    if (calibration.samples.cluster != all.cluster) return error::MixedClusters(all.name, calibration.calibration);
    all.samples.insert(all.samples.end(), calibration.samples.samples.begin(), calibration.samples.samples.end());
  }
  return moeplan::FitProfile(all);
}

StatusOr<ProfileVersion> FitStored(const Environment& environment, const std::string& request,
                                   const std::string& profile_name) {
  ASSIGN_OR_RETURN(const std::optional<ProfileVersion> before, environment.store.VersionOfRequest(request));
  if (before && before->name != profile_name) return error::RequestReused(request);
  if (before) return *before;
  ASSIGN_OR_RETURN(const std::vector<Calibration> calibrations,
                   environment.store.SamplesOf({.profile_name = profile_name}));
  ASSIGN_OR_RETURN(const Profile profile, FitTogether(calibrations));
  return SaveOnce(environment.store, request, profile);
}

StatusOr<v1::FitProfileResponse> FitProfile(const Environment& environment, const v1::FitProfileRequest& request,
                                            std::stop_token cancelled) {
  RETURN_IF_ERROR(ValidateRequestId(request.request_id()));
  if (request.profile_name().empty()) {
    return moeplan::error::Mismatch("profileName", "nothing", "a text that is not empty");
  }
  const std::scoped_lock in_turn(environment.puts.in_turn);
  if (cancelled.stop_requested()) return error::CallerLeft();
  ASSIGN_OR_RETURN(const ProfileVersion version,
                   FitStored(environment, "FitProfile " + request.request_id(), request.profile_name()));
  v1::FitProfileResponse response;
  response.set_profile_name(version.name);
  response.set_profile_version(version.version);
  return response;
}

}  // namespace moeplan::service
