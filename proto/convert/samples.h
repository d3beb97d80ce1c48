// Samples to and from messages. Reading checks everything that ValidateSamples checks, and that a kernel has no group
// and each size is in the unit of its operation. Pure.
#pragma once

#include <string>

#include "models/cost/samples.h"
#include "models/status.h"
#include "moeplan/v1/samples.pb.h"

namespace moeplan {

// One sample without its times checked: what a measurement is asked for by.
StatusOr<Sample> SampleFromProto(const v1::Sample& message, const std::string& path);
v1::Sample ToProto(const Sample& sample);

StatusOr<SampleSet> SamplesFromProto(const v1::Samples& message);
// Without what ValidateSizeAndTimes checks, and there may be none: for who sets single samples aside.
StatusOr<SampleSet> UncheckedSamplesFromProto(const v1::Samples& message);

v1::Samples ToProto(const SampleSet& samples);

v1::RejectedSample ToProto(const RejectedSample& rejected);

}  // namespace moeplan
