#include "models/cost/samples.h"

#include <algorithm>
#include <cmath>

#include "models/text.h"

namespace moeplan {
namespace {

bool PositiveNumber(double value) { return std::isfinite(value) && value > 0; }

Status ValidateKey(const Sample& sample, const std::string& path) {
  if (const auto* key = std::get_if<CollectiveKey>(&sample.key)) return ValidateCollectiveKey(*key, path);
  return ValidateKernelKey(std::get<KernelKey>(sample.key), path);
}

std::string TimesOf(const std::string& path) { return path.empty() ? "timeS" : path + ".timeS"; }

Status ValidateRate(const Sample& sample, const std::string& path) {
  const auto fastest = std::ranges::min_element(sample.times_s);
  const double rate_per_s = sample.size / *fastest;
  if (rate_per_s <= kHighestRatePerS) return OkStatus();
  return InvalidInput(StrCat(TimesOf(path), "[", fastest - sample.times_s.begin(), "]: found ", *fastest,
                             " s, which is ", rate_per_s, " per second, expected at most ", kHighestRatePerS));
}

}  // namespace

Status ValidateSizeAndTimes(const Sample& sample, const std::string& path) {
  if (!PositiveNumber(sample.size)) {
    return InvalidInput(
        StrCat(path.empty() ? "" : path + ": ", "found size ", sample.size, ", expected a finite number above 0"));
  }
  const std::string times = TimesOf(path);
  if (sample.times_s.empty()) return InvalidInput(StrCat(times, ": found no time, expected at least one"));
  for (size_t i = 0; i < sample.times_s.size(); ++i) {
    if (PositiveNumber(sample.times_s[i])) continue;
    return InvalidInput(StrCat(times, "[", i, "]: found ", sample.times_s[i], ", expected a finite number above 0"));
  }
  return OkStatus();
}

Status ValidatePossible(const Sample& sample, const std::string& path) {
  RETURN_IF_ERROR(ValidateSizeAndTimes(sample, path));
  if (sample.size < kSmallestSize || sample.size > kLargestSize) {
    return InvalidInput(StrCat(path.empty() ? "" : path + ": ", "found size ", sample.size, ", expected ",
                               kSmallestSize, " to ", kLargestSize));
  }
  for (size_t i = 0; i < sample.times_s.size(); ++i) {
    if (kShortestRepeatS <= sample.times_s[i] && sample.times_s[i] <= kLongestRepeatS) continue;
    return InvalidInput(StrCat(TimesOf(path), "[", i, "]: found ", sample.times_s[i], ", expected ", kShortestRepeatS,
                               " to ", kLongestRepeatS, " s"));
  }
  return ValidateRate(sample, path);
}

bool IsPossible(double size, std::span<const double> times_s) {
  const auto possible = [size](double time_s) {
    return kShortestRepeatS <= time_s && time_s <= kLongestRepeatS && size / time_s <= kHighestRatePerS;
  };
  return kSmallestSize <= size && size <= kLargestSize && !times_s.empty() && std::ranges::all_of(times_s, possible);
}

int DropImpossible(std::vector<Sample>& samples) {
  return static_cast<int>(
      std::erase_if(samples, [](const Sample& sample) { return !IsPossible(sample.size, sample.times_s); }));
}

Status ValidateSample(const Sample& sample, const std::string& path) {
  RETURN_IF_ERROR(ValidateKey(sample, path));
  return ValidateSizeAndTimes(sample, path);
}

Status ValidateSamples(const SampleSet& samples) {
  RETURN_IF_ERROR(ValidateCluster(samples.cluster, "cluster"));
  if (samples.samples.empty()) return InvalidInput("samples: found none, expected at least one");
  for (size_t i = 0; i < samples.samples.size(); ++i) {
    const std::string path = StrCat("samples[", i, "]");
    RETURN_IF_ERROR(ValidateKey(samples.samples[i], path));
    RETURN_IF_ERROR(ValidatePossible(samples.samples[i], path));
  }
  return OkStatus();
}

}  // namespace moeplan
