// ProfileService.PutSamples.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/profile_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// AppendSamples, and FitProfile where a sample was stored. A retry appends nothing and answers the version that the
// first became, after a restart, too; where a crash came between appending and fitting, it fits. Where every sample was
// set aside no profile changes, and the answer's version is 0.
StatusOr<v1::PutSamplesResponse> PutSamples(const Environment& environment, const v1::PutSamplesRequest& request,
                                            std::stop_token cancelled);

}  // namespace moeplan::service
