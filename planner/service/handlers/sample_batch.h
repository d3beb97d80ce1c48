// Samples as a batch for the store, with those set aside that must not count.
#pragma once

#include <string>

#include "db/store.h"
#include "models/status.h"
#include "moeplan/v1/samples.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// The batch of a request. What Screen (samples/screen.h) finds is rejected, with the agents that the caller may name. A
// request that says nothing a sample could be is kInvalidInput: no name, no samples, a key or cluster that is wrong, a
// bad request_id or calibration.
StatusOr<SampleBatch> BatchOf(const Environment& environment, const std::string& request_id,
                              const std::string& calibration, const v1::Samples& samples);

}  // namespace moeplan::service
