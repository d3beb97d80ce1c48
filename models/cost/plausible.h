// Which samples cannot be right: those that no sound clock on that cluster can have taken.
//
// A sample is set aside when its size or one of its times is no finite number above 0 (or it has no time), or when its
// fastest repeat is faster than
//   - the links of a rank: of a collective on `size` bytes, size · min(φ, 1) bytes leave or reach each rank (φ is
//     BusFactor; a switch that reduces spares an all-reduce the second half). How many bytes per second a rank can move
//     at most in one direction, over all links that the collective uses, is what the sample's provenance says under
//     "linkBytesPerS"; without that key the links are not known, and not asked;
//   - the GPU: of a kernel that counts flops, size flops at cluster.peak_flops_per_s, where that is known.
// Peaks are round numbers and clocks tick: up to kPeakSlack times the peak passes. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/cost/samples.h"

namespace moeplan {

inline constexpr char kLinkBytesPerSKey[] = "linkBytesPerS";
inline constexpr double kPeakSlack = 1.05;

// What is wrong with the sample, in one sentence; absent: nothing that can be seen. Its key must be valid.
std::optional<std::string> WhyImplausible(const Sample& sample, const Cluster& cluster);

}  // namespace moeplan
