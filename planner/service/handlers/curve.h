// ProfileService.GetCurve.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/profile_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// The model is that of the version asked for; which samples are outliers is what a fit of all that count says now. A
// sample is one where most of its repeats are. kNotFound: no such profile, or no such cost in it. kInvalidInput:
// max_samples.
StatusOr<v1::GetCurveResponse> GetCurve(const Environment& environment, const v1::GetCurveRequest& request,
                                        std::stop_token cancelled);

}  // namespace moeplan::service
