#include "models/cost/samples.h"

#include <cmath>

#include "models/text.h"

namespace moeplan {
namespace {

bool PositiveNumber(double value) { return std::isfinite(value) && value > 0; }

}  // namespace

Status ValidateSizeAndTimes(const Sample& sample, const std::string& path) {
  if (!PositiveNumber(sample.size)) {
    return InvalidInput(
        StrCat(path.empty() ? "" : path + ": ", "found size ", sample.size, ", expected a finite number above 0"));
  }
  const std::string times = path.empty() ? "timeS" : path + ".timeS";
  if (sample.times_s.empty()) return InvalidInput(StrCat(times, ": found no time, expected at least one"));
  for (size_t i = 0; i < sample.times_s.size(); ++i) {
    if (PositiveNumber(sample.times_s[i])) continue;
    return InvalidInput(StrCat(times, "[", i, "]: found ", sample.times_s[i], ", expected a finite number above 0"));
  }
  return OkStatus();
}

Status ValidateSample(const Sample& sample, const std::string& path) {
  if (const auto* key = std::get_if<CollectiveKey>(&sample.key)) RETURN_IF_ERROR(ValidateCollectiveKey(*key, path));
  if (const auto* key = std::get_if<KernelKey>(&sample.key)) RETURN_IF_ERROR(ValidateKernelKey(*key, path));
  return ValidateSizeAndTimes(sample, path);
}

Status ValidateSamples(const SampleSet& samples) {
  RETURN_IF_ERROR(ValidateCluster(samples.cluster, "cluster"));
  if (samples.samples.empty()) return InvalidInput("samples: found none, expected at least one");
  for (size_t i = 0; i < samples.samples.size(); ++i) {
    RETURN_IF_ERROR(ValidateSample(samples.samples[i], StrCat("samples[", i, "]")));
  }
  return OkStatus();
}

}  // namespace moeplan
