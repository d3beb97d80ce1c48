// Whether an operation on a stream takes too long, from what a host sees that looks now and then. The time of an
// operation begins when it is first seen under way: what is queued before it is not its own. Pure; one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace moeplan::executor::cuda {

using HostTime = std::chrono::steady_clock::time_point;

inline std::chrono::steady_clock::duration DurationOf(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

class DeadlineWatch {
 public:
  explicit DeadlineWatch(double deadline_s) : deadline_(DurationOf(deadline_s)) {}

  // `run` counts the times that the operation was queued: a replay begins anew, whatever was seen of the one before.
  bool IsOverdue(bool begun, bool ended, uint64_t run, HostTime now) {
    if (!begun || ended || run != run_) first_seen_.reset();
    run_ = run;
    if (!begun || ended) return false;
    if (!first_seen_) first_seen_ = now;
    return now - *first_seen_ >= deadline_;
  }

 private:
  std::chrono::steady_clock::duration deadline_;
  std::optional<HostTime> first_seen_;
  uint64_t run_ = 0;
};

}  // namespace moeplan::executor::cuda
