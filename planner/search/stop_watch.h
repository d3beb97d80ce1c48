// Looks at the stop signals of one search and remembers the first that it saw: a search that was stopped says so, and
// one that was done by then does not.
#pragma once

#include "models/plan/plan.h"
#include "planner/stop_signals.h"

namespace moeplan::planner {

class StopWatch {
 public:
  // The signals are borrowed.
  explicit StopWatch(const StopSignals& signals) : signals_(signals) {}

  bool Stopped() {
    if (reason_ != StopReason::kNotSearched) return true;
    if (signals_.out_of_time.stop_requested()) reason_ = StopReason::kOutOfTime;
    if (signals_.cancelled.stop_requested()) reason_ = StopReason::kCancelled;
    return reason_ != StopReason::kNotSearched;
  }

  const StopSignals& signals() const { return signals_; }
  // kNotSearched: no look has seen a signal.
  StopReason reason() const { return reason_; }

 private:
  const StopSignals& signals_;
  StopReason reason_ = StopReason::kNotSearched;
};

}  // namespace moeplan::planner
