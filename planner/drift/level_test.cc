#include "planner/drift/level_test.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "models/fit/statistics.h"

namespace moeplan {
namespace {

constexpr double kUsual = 0.5, kShifted = 0.9;  // Shares beyond the band: p0 and p1.
const double kFor = std::log(kShifted / kUsual), kAgainst = std::log((1 - kUsual) / (1 - kShifted));
const double kThreshold = std::log(1e6);

}  // namespace

std::optional<LevelShift> LevelTest::Observe(double log_ratio) {
  const double off = log_ratio - level_log_, band = std::log(kBandRatio);
  above_ = std::max(0.0, above_ + (off > band ? kFor : -kAgainst));
  below_ = std::max(0.0, below_ + (off < -band ? kFor : -kAgainst));
  since_zero_ = above_ > 0 || below_ > 0 ? since_zero_ + 1 : 0;
  latest_.push_back(log_ratio);
  if (latest_.size() > kKept) latest_.pop_front();
  if (std::max(above_, below_) < kThreshold) return std::nullopt;
  const auto count = std::min(latest_.size(), static_cast<size_t>(since_zero_));
  const std::vector<double> found_by(latest_.end() - static_cast<std::ptrdiff_t>(count), latest_.end());
  const LevelShift shift = {.log_ratio = Median(found_by), .observations = static_cast<int>(count)};
  MoveTo(level_log_);
  return shift;
}

void LevelTest::MoveTo(double level_log) {
  *this = LevelTest();
  level_log_ = level_log;
}

}  // namespace moeplan
