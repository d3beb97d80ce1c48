// Which samples cannot be right: those that no sound clock on that cluster can have taken.
//
// A sample is set aside when its size, its times or their rate are out of the bounds of any machine (ValidatePossible,
// models/cost/samples.h), or when its fastest repeat is faster than
//   - the links of a rank: a collective on `size` bytes moves size · min(φ, 1) bytes out of, or into, each rank (φ is
//     BusFactor; a switch that reduces spares an all-reduce the second half). The sample's provenance says under
//     "linkBytesPerS" how many bytes per second a rank can move at most in one direction, over all links that the
//     collective uses; without that key the links are not known, and not asked;
//   - the same links as the cluster knows them, where it does: node_link_bytes_per_s holds for a group inside one node,
//     and network_bytes_per_s for a group of one rank a node, less a burst (kBurstS). Groups that use both are not
//     asked, nor are collectives that gather in other groups, too (kAllToAllAllGather), and dispatchers, which count
//     their bytes otherwise;
//   - the GPU: a kernel that counts flops does `size` flops at cluster.peak_flops_per_s, where that is known.
// Peaks are round numbers and clocks tick: up to kPeakSlack times the peak passes. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/cost/samples.h"
#include "models/status.h"
#include "models/workload/workload.h"

namespace moeplan {

// Names in a sample's provenance that moeplan reads: who took it, and the links of a rank.
inline constexpr char kAgentKey[] = "agent";
inline constexpr char kLinkBytesPerSKey[] = "linkBytesPerS";
inline constexpr double kPeakSlack = 1.05;

// The slowest peak, the smallest memory and the slowest links that a device may be said to have; their upper bounds are
// kHighestRatePerS, kLargestSize and kHighestRatePerS again of models/cost/samples.h. They are as generous as those.
inline constexpr double kLowestPeakFlopsPerS = 1e6, kSmallestDeviceBytes = 1 << 20, kSlowestLinkBytesPerS = 1;

// A network that is shaped (an emulated one, or a cloud's) sends the first bytes after a pause faster than its rate: as
// many as it passes in kBurstS, within these bounds. They do not count against it.
inline constexpr double kBurstS = 3e-4, kLeastBurstBytes = 1 << 15, kMostBurstBytes = 1 << 21;

// kInvalidInput: one of the four is known (not 0) and outside the bounds above; `path` names the cluster.
Status ValidatePossible(const Cluster& cluster, const std::string& path);

// Forgets (sets to 0) what ValidatePossible refuses: a moeplan without bounds may have stored it.
void ForgetImpossible(Cluster& cluster);

// What is wrong with the sample, in one sentence; absent: nothing that can be seen. Its key must be valid.
std::optional<std::string> WhyImplausible(const Sample& sample, const Cluster& cluster);

}  // namespace moeplan
