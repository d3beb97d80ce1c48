// ProfileService.ListSamples.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/profile_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// kNotFound: there is no sample under the name. Of a cost that has none under it the page is empty.
StatusOr<v1::ListSamplesResponse> ListSamples(const Environment& environment, const v1::ListSamplesRequest& request,
                                              std::stop_token cancelled);

}  // namespace moeplan::service
