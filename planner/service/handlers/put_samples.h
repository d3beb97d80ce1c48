// ProfileService.PutSamples.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/profile_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// Appends the samples durably, fits all samples of their name and stores the profile as its next version.
//
// A retry appends nothing. It answers the first version that equals the fit of the samples of that name as they stood
// when, or after, these were appended: fits are the same to the bit for the same samples, so this needs no memory and
// holds across restarts. Where a crash came between appending and storing there is no such version, and one is made.
// Samples of another cluster than the earlier ones of that name are kInvalidInput.
StatusOr<v1::PutSamplesResponse> PutSamples(const Environment& environment, const v1::PutSamplesRequest& request,
                                            std::stop_token cancelled);

}  // namespace moeplan::service
