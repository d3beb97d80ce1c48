// ProfileService.GetLinks.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/profile_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// FitLinks of a stored profile. kNotFound: there is none.
StatusOr<v1::GetLinksResponse> GetLinks(const Environment& environment, const v1::GetLinksRequest& request,
                                        std::stop_token cancelled);

}  // namespace moeplan::service
