#include "models/cost/plausible.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <variant>

#include "models/cost/shape_surface.h"
#include "models/text.h"

namespace moeplan {
namespace {

std::optional<double> PositiveNumberOf(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, number);
  if (problem != std::errc() || rest != end || !std::isfinite(number) || number <= 0) return std::nullopt;
  return number;
}

std::optional<std::string> WhyTooFast(const Sample& sample, double amount, double peak_per_s, const std::string& peak) {
  const auto fastest = std::ranges::min_element(sample.times_s);
  const double rate_per_s = amount / *fastest;
  if (rate_per_s <= kPeakSlack * peak_per_s) return std::nullopt;
  return StrCat("timeS[", fastest - sample.times_s.begin(), "]: found ", *fastest, " s, which is ", rate_per_s,
                " per second, expected at most ", peak, " = ", peak_per_s);
}

std::optional<std::string> WhyTooFast(const Sample& sample, const CollectiveKey& key) {
  const auto link = sample.provenance.find(kLinkBytesPerSKey);
  if (link == sample.provenance.end()) return std::nullopt;
  const std::string peak = StrCat("provenance.", kLinkBytesPerSKey);
  const std::optional<double> link_bytes_per_s = PositiveNumberOf(link->second);
  if (!link_bytes_per_s) return StrCat(peak, ": found '", link->second, "', expected a finite number above 0");
  const double moved_bytes = sample.size * std::min(1.0, BusFactor(key.collective, key.group.size));
  return WhyTooFast(sample, moved_bytes, *link_bytes_per_s, peak);
}

std::optional<std::string> WhyTooFast(const Sample& sample, const KernelKey& key, const Cluster& cluster) {
  if (!CountsFlops(key.kernel) || cluster.peak_flops_per_s <= 0) return std::nullopt;
  const double computed = IsAttention(key.kernel) ? sample.size / kCountedPerComputed : sample.size;
  return WhyTooFast(sample, computed, cluster.peak_flops_per_s, "cluster.peakFlopsPerS");
}

bool IsPossiblePeak(double flops_per_s) {
  return flops_per_s == 0 || (kLowestPeakFlopsPerS <= flops_per_s && flops_per_s <= kHighestRatePerS);
}

bool IsPossibleMemory(double bytes) { return bytes == 0 || (kSmallestDeviceBytes <= bytes && bytes <= kLargestSize); }

Status Impossible(const std::string& path, double found, double least, double most) {
  return InvalidInput(StrCat(path, ": found ", found, ", expected 0 (not known) or ", least, " to ", most));
}

}  // namespace

Status ValidatePossible(const Cluster& cluster, const std::string& path) {
  if (!IsPossiblePeak(cluster.peak_flops_per_s)) {
    return Impossible(path + ".peakFlopsPerS", cluster.peak_flops_per_s, kLowestPeakFlopsPerS, kHighestRatePerS);
  }
  if (!IsPossibleMemory(cluster.device_memory_bytes)) {
    return Impossible(path + ".deviceMemoryBytes", cluster.device_memory_bytes, kSmallestDeviceBytes, kLargestSize);
  }
  return OkStatus();
}

void ForgetImpossible(Cluster& cluster) {
  if (!IsPossiblePeak(cluster.peak_flops_per_s)) cluster.peak_flops_per_s = 0;
  if (!IsPossibleMemory(cluster.device_memory_bytes)) cluster.device_memory_bytes = 0;
}

std::optional<std::string> WhyImplausible(const Sample& sample, const Cluster& cluster) {
  if (const Status sound = ValidatePossible(sample, ""); !sound.ok()) return sound.message();
  if (const auto* key = std::get_if<CollectiveKey>(&sample.key)) return WhyTooFast(sample, *key);
  return WhyTooFast(sample, std::get<KernelKey>(sample.key), cluster);
}

}  // namespace moeplan
