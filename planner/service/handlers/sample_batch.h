// Samples as a batch for the store, with those set aside that must not count.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "db/store.h"
#include "models/status.h"
#include "moeplan/v1/samples.pb.h"
#include "planner/service/handlers/environment.h"

namespace moeplan::service {

// The samples that cannot be right (models/cost/plausible.h) and those whose provenance names an "agent" that nobody
// knows; without `knows_agent` all are known. Their keys must be valid.
std::vector<Rejection> Screen(const SampleSet& samples,
                              const std::function<bool(const std::string& agent)>& knows_agent);

// Of a request; what Screen finds, with the environment's agents, is rejected. A request that says nothing a sample
// could be is kInvalidInput: no name, no samples, a key or cluster that is wrong, a bad request_id or calibration.
StatusOr<SampleBatch> BatchOf(const Environment& environment, const std::string& request_id,
                              const std::string& calibration, const v1::Samples& samples);

}  // namespace moeplan::service
