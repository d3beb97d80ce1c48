// Which sizes of a curve are fitted where there are very many.
//
// What a fit costs grows with the square of the sizes, and whoever reports samples adds sizes for good. So of more than
// kMostFittedSizes, these are fitted: the smallest, the largest, and from each of equal steps of log size between them
// the size with the most repeats (of several the smallest). The others count neither as points nor as outliers. Pure.
#pragma once

#include <span>
#include <vector>

#include "models/fit/screen.h"

namespace moeplan {

inline constexpr int kMostFittedSizes = 512;

// Whether the size of each measurement is fitted. Requires sizes that are finite and above 0.
std::vector<bool> AreFitted(std::span<const SizedSpan> measurements);

}  // namespace moeplan
