#include "planner/service/handlers/fit_profile.h"

#include "planner/service/errors.h"
#include "planner/service/puts.h"
#include "planner/service/samples/fit_together.h"
#include "proto/errors.h"

namespace moeplan::service {

StatusOr<v1::FitProfileResponse> FitProfile(const Environment& environment, const v1::FitProfileRequest& request,
                                            std::stop_token cancelled) {
  RETURN_IF_ERROR(ValidateRequestId(request.request_id()));
  if (request.profile_name().empty()) {
    return moeplan::error::Mismatch("profileName", "nothing", "a text that is not empty");
  }
  ASSIGN_OR_RETURN(const Puts::Turn turn, environment.puts.TakeTurn(request.profile_name(), cancelled));
  ASSIGN_OR_RETURN(const Profile profile,
                   FitStored(environment.store, "FitProfile " + request.request_id(), request.profile_name(),
                             UnknownPeak::kStaysUnknown, {.stop = cancelled, .memory = &environment.puts.fits()}));
  v1::FitProfileResponse response;
  response.set_profile_name(profile.name);
  response.set_profile_version(profile.version);
  return response;
}

}  // namespace moeplan::service
