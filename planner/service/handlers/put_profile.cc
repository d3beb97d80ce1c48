#include "planner/service/handlers/put_profile.h"

#include <optional>

#include "planner/service/errors.h"
#include "planner/service/handlers/same_models.h"
#include "proto/convert/profile.h"
#include "proto/errors.h"

namespace moeplan::service {
namespace {

StatusOr<Profile> ProfileOf(const v1::PutProfileRequest& request) {
  if (request.profile().name().empty()) {
    return moeplan::error::Mismatch("profile.name", "nothing", "a text that is not empty");
  }
  StatusOr<Profile> profile = ProfileFromProto(request.profile());
  return profile.ok() ? profile : profile.status().Within("profile");
}

StatusOr<ProfileVersion> CheckedRepeat(const Store& store, const v1::PutProfileRequest& request, const Profile& profile,
                                       const ProfileVersion& before) {
  ASSIGN_OR_RETURN(const Profile stored, store.LoadProfile({.name = before.name, .version = before.version}));
  if (!SameModels(stored, profile)) return error::RequestReused(request.request_id());
  return before;
}

StatusOr<ProfileVersion> Put(Store& store, const v1::PutProfileRequest& given, const Profile& profile) {
  const std::string request = "PutProfile " + given.request_id();
  ASSIGN_OR_RETURN(const std::optional<ProfileVersion> before, store.VersionOfRequest(request));
  return before ? CheckedRepeat(store, given, profile, *before) : SaveOnce(store, request, profile);
}

}  // namespace

StatusOr<v1::PutProfileResponse> PutProfile(const Environment& environment, const v1::PutProfileRequest& request,
                                            std::stop_token cancelled) {
  RETURN_IF_ERROR(ValidateRequestId(request.request_id()));
  ASSIGN_OR_RETURN(const Profile profile, ProfileOf(request));
  ASSIGN_OR_RETURN(const Puts::Turn turn, environment.puts.TakeTurn(profile.name, cancelled));
  ASSIGN_OR_RETURN(const ProfileVersion version, Put(environment.store, request, profile));
  v1::PutProfileResponse response;
  response.set_profile_name(version.name);
  response.set_profile_version(version.version);
  return response;
}

}  // namespace moeplan::service
