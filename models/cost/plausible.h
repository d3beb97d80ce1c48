// Which samples cannot be right: those that no sound clock on that cluster can have taken.
//
// A sample is set aside when its size, its times or their rate are out of the bounds of any machine (ValidatePossible,
// models/cost/samples.h), or when its fastest repeat is faster than
//   - the links of a rank: a collective on `size` bytes moves size · min(φ, 1) bytes out of, or into, each rank (φ is
//     BusFactor; a switch that reduces spares an all-reduce the second half). The sample's provenance says under
//     "linkBytesPerS" how many bytes per second a rank can move at most in one direction, over all links that the
//     collective uses; without that key the links are not known, and not asked;
//   - the GPU: a kernel that counts flops does `size` flops at cluster.peak_flops_per_s, where that is known.
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
