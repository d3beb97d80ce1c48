#include "planner/drift/level_test.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "models/fit/statistics.h"

namespace moeplan::planner {
namespace {

constexpr double kUsual = 0.5, kShifted = 0.9;  // Shares beyond the band: p0 and p1.
const double kFor = std::log(kShifted / kUsual), kAgainst = std::log((1 - kUsual) / (1 - kShifted));
const double kThreshold = std::log(2e6);

}  // namespace

void LevelTest::Side::Add(bool beyond) {
  sum = std::max(0.0, sum + (beyond ? kFor : -kAgainst));
  since_zero = sum > 0 ? since_zero + 1 : 0;
}

std::optional<LevelShift> LevelTest::Observe(double log_ratio) {
  const double off = log_ratio - level_log_, band = std::log(kBandRatio);
  above_.Add(off > band);
  below_.Add(off < -band);
  latest_.push_back(log_ratio);
  if (latest_.size() > kKept) latest_.pop_front();
  const Side& higher = above_.sum > below_.sum ? above_ : below_;
  if (higher.sum < kThreshold) return std::nullopt;
  const auto known = std::min(std::ssize(latest_), static_cast<std::ptrdiff_t>(higher.since_zero));
  const LevelShift shift = {.log_ratio = Median({latest_.end() - known, latest_.end()}),
                            .observations = higher.since_zero};
  MoveTo(level_log_);
  return shift;
}

void LevelTest::MoveTo(double level_log) {
  *this = LevelTest();
  level_log_ = level_log;
}

}  // namespace moeplan::planner
