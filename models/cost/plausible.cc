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

double MovedBytes(const Sample& sample, const CollectiveKey& key) {
  return sample.size * std::min(1.0, BusFactor(key.collective, key.group.size));
}

std::optional<std::string> WhyFasterThanToldLinks(const Sample& sample, const CollectiveKey& key) {
  const auto link = sample.provenance.find(kLinkBytesPerSKey);
  if (link == sample.provenance.end()) return std::nullopt;
  const std::string peak = StrCat("provenance.", kLinkBytesPerSKey);
  const std::optional<double> link_bytes_per_s = PositiveNumberOf(link->second);
  if (!link_bytes_per_s) return StrCat(peak, ": found '", link->second, "', expected a finite number above 0");
  return WhyTooFast(sample, MovedBytes(sample, key), *link_bytes_per_s, peak);
}

std::optional<std::string> WhyFasterThanLinks(const Sample& sample, const CollectiveKey& key, const Cluster& cluster) {
  if (key.collective == Collective::kAllToAllAllGather || key.dispatcher != Dispatcher::kAllToAll) return std::nullopt;
  const double moved_bytes = MovedBytes(sample, key);
  if (key.group.ranks_per_node == key.group.size) {
    if (cluster.node_link_bytes_per_s <= 0) return std::nullopt;
    return WhyTooFast(sample, moved_bytes, cluster.node_link_bytes_per_s, "cluster.nodeLinkBytesPerS");
  }
  if (key.group.ranks_per_node > 1 || cluster.network_bytes_per_s <= 0) return std::nullopt;
  const double burst_bytes = std::clamp(kBurstS * cluster.network_bytes_per_s, kLeastBurstBytes, kMostBurstBytes);
  return WhyTooFast(sample, moved_bytes - burst_bytes, cluster.network_bytes_per_s, "cluster.networkBytesPerS");
}

std::optional<std::string> WhyTooFast(const Sample& sample, const CollectiveKey& key, const Cluster& cluster) {
  if (std::optional<std::string> why = WhyFasterThanToldLinks(sample, key)) return why;
  return WhyFasterThanLinks(sample, key, cluster);
}

std::optional<std::string> WhyTooFast(const Sample& sample, const KernelKey& key, const Cluster& cluster) {
  if (!CountsFlops(key.kernel) || cluster.peak_flops_per_s <= 0) return std::nullopt;
  const double computed = IsAttention(key.kernel) ? sample.size / kCountedPerComputed : sample.size;
  return WhyTooFast(sample, computed, cluster.peak_flops_per_s, "cluster.peakFlopsPerS");
}

// A figure that a cluster may have of its devices, and the bounds of it.
struct Capacity {
  const char* name;
  double Cluster::*value;
  double least, most;

  bool IsPossible(const Cluster& cluster) const {
    const double told = cluster.*value;
    return told == 0 || (least <= told && told <= most);
  }
};

constexpr Capacity kCapacities[] = {
    {"peakFlopsPerS", &Cluster::peak_flops_per_s, kLowestPeakFlopsPerS, kHighestRatePerS},
    {"deviceMemoryBytes", &Cluster::device_memory_bytes, kSmallestDeviceBytes, kLargestSize},
    {"nodeLinkBytesPerS", &Cluster::node_link_bytes_per_s, kSlowestLinkBytesPerS, kHighestRatePerS},
    {"networkBytesPerS", &Cluster::network_bytes_per_s, kSlowestLinkBytesPerS, kHighestRatePerS}};

}  // namespace

Status ValidatePossible(const Cluster& cluster, const std::string& path) {
  for (const Capacity& capacity : kCapacities) {
    if (capacity.IsPossible(cluster)) continue;
    return InvalidInput(StrCat(path, ".", capacity.name, ": found ", cluster.*capacity.value,
                               ", expected 0 (not known) or ", capacity.least, " to ", capacity.most));
  }
  return OkStatus();
}

void ForgetImpossible(Cluster& cluster) {
  for (const Capacity& capacity : kCapacities) {
    if (!capacity.IsPossible(cluster)) cluster.*capacity.value = 0;
  }
}

std::optional<std::string> WhyImplausible(const Sample& sample, const Cluster& cluster) {
  if (const Status sound = ValidatePossible(sample, ""); !sound.ok()) return sound.message();
  if (const auto* key = std::get_if<CollectiveKey>(&sample.key)) return WhyTooFast(sample, *key, cluster);
  return WhyTooFast(sample, std::get<KernelKey>(sample.key), cluster);
}

}  // namespace moeplan
