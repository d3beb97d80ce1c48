// SAMPLES.json, as `fit` reads it and as the planner does, which sets single samples aside.
#include "proto/convert/samples.h"
#include "models/cost/plausible.h"
#include "tests/fuzz/fuzzed.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moeplan;
  FuzzJsonFile<v1::Samples>(TextOf(data, size), SamplesFromProto);
  FuzzJsonFile<v1::Samples>(TextOf(data, size), [](const v1::Samples& message) -> StatusOr<SampleSet> {
    ASSIGN_OR_RETURN(SampleSet samples, UncheckedSamplesFromProto(message));
    std::erase_if(samples.samples,
                  [&](const Sample& sample) { return WhyImplausible(sample, samples.cluster).has_value(); });
    if (!samples.samples.empty()) MOEPLAN_CHECK(ValidateSamples(samples).ok());
    return samples;
  });
  return 0;
}
