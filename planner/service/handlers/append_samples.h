// ProfileService.AppendSamples.
#pragma once

#include <stop_token>

#include "models/status.h"
#include "moeplan/v1/profile_service.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// Answers once the samples are committed and synced, together with those of other callers. A retry appends nothing and
// answers the same. Samples of another cluster than the earlier ones of that name are kInvalidInput. It waits for the
// disk, so callers that should share a sync need a thread each.
StatusOr<v1::AppendSamplesResponse> AppendSamples(const Environment& environment,
                                                  const v1::AppendSamplesRequest& request, std::stop_token cancelled);

}  // namespace moeplan::service
