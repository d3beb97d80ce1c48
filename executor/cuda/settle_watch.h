// Whether a card's clock is that of long work, from readings taken while it works. Pure; one thread.
#pragma once

#include <algorithm>
#include <cmath>

namespace moeplan::executor::cuda {

class SettleWatch {
 public:
  // Of the clock, or of the time of equal work. True once three readings in a row are each within 1 % of the one
  // before.
  bool IsSettledAt(double reading) {
    const bool steady = before_ > 0 && std::abs(reading - before_) < kSpread * std::max(reading, before_);
    steady_ = steady ? steady_ + 1 : 0;
    before_ = reading;
    return steady_ >= kReadings;
  }

 private:
  static constexpr double kSpread = 0.01;
  static constexpr int kReadings = 3;

  double before_ = 0;
  int steady_ = 0;
};

}  // namespace moeplan::executor::cuda
