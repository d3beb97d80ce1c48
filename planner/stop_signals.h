// Why work that a request can make long should end before it is done.
//
// Whatever loops over something that a request says the length of looks at these at least every few milliseconds. What
// it answers then is said where it is declared: an error, or the best that it knows.
#pragma once

#include <stop_token>

namespace moeplan::planner {

struct StopSignals {
  std::stop_token cancelled;    // Nobody waits for the answer any more.
  std::stop_token out_of_time;  // The deadline that came with the request has passed.

  bool Requested() const { return cancelled.stop_requested() || out_of_time.stop_requested(); }
};

}  // namespace moeplan::planner
