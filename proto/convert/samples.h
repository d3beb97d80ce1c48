// Samples to and from messages. Reading checks everything that ValidateSamples checks, and that a kernel has no group
// and each size is in the unit of its operation. Pure.
#pragma once

#include "models/cost/samples.h"
#include "models/status.h"
#include "moeplan/v1/samples.pb.h"

namespace moeplan {

StatusOr<SampleSet> SamplesFromProto(const v1::Samples& message);

v1::Samples ToProto(const SampleSet& samples);

}  // namespace moeplan
