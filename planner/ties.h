// When two predicted times are the same time, and which of several choices wins then.
//
// The times of choices that cost the same are sums of the same terms in another order, or of their parts, and differ in
// the last digits. No comparison may turn on those digits, or the answer would be one that no reader can explain.
#pragma once

#include <cstddef>
#include <span>

namespace moeplan::planner {

// Two times tie when they differ by less than this share of them.
inline constexpr double kTie = 1e-9;

// A search takes one choice for better than another only where it gains more than this share of a time; less is
// rounding.
inline constexpr double kNoGain = 1e-12;

// The index of the first time that ties with the smallest one. Where choices stand from the simplest to the most
// involved, this gives ties to the simplest. Requires at least one time, none negative.
size_t FirstOfSmallest(std::span<const double> times_s);

}  // namespace moeplan::planner
