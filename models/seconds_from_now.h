// Deadlines as points in time.
#pragma once

#include <chrono>

namespace moeplan {

inline std::chrono::steady_clock::time_point SecondsFromNow(double seconds) {
  using Clock = std::chrono::steady_clock;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace moeplan
