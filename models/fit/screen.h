// Which measurements to believe: the first step of every fit.
//
// A disturbed measurement is too slow, hardly ever too fast, and disturbances are at random, so that now and then most
// repeats of one size are slow, or all. Repeats of one size are therefore cut into clusters wherever a gap is wider
// than noise, and one cluster for each size (or none) is believed: the choice, over all sizes at once, that is cheapest
// in
//   - log odds of the measurements it calls slow, and much more of those it calls fast;
//   - jumps between neighbouring sizes that no protocol switch makes: more than threefold, down or beyond the growth of
//   size.
// Everything outside the believed clusters is an outlier. Pure.
#pragma once

#include <span>
#include <vector>

namespace moeplan {

struct SizedTimes {
  double size = 0;
  std::vector<double> times_s;  // Repeats.
};
// The same, borrowed.
struct SizedSpan {
  double size = 0;
  std::span<const double> times_s;
};
std::vector<SizedSpan> SpansOf(const std::vector<SizedTimes>& measurements);

// The believed repeats of one size.
struct ScreenedSize {
  double size = 0;
  std::vector<double> log_times;  // Natural logarithms of seconds, rising; never empty.

  double LogMedian() const;
  double LogMean() const;
};

struct Screened {
  std::vector<ScreenedSize> sizes;  // Rising in size; never empty.
  double noise = 0;                 // Standard deviation of the log time of one repeat; 0 when nothing was repeated.
  int outliers = 0;
  int points = 0;  // Sizes measured, with those where nothing is believed.
};

// Requires one time at least, sizes and times finite and above 0.
Screened Screen(std::span<const SizedSpan> measurements);

// Which repeats of each measurement Screen does not believe, rising, by the place of the measurement; they are
// `outliers` in all; none of those whose size is not fitted (fitted_sizes.h). The same requirement.
std::vector<std::vector<int>> OutliersOf(std::span<const SizedSpan> measurements);

}  // namespace moeplan
