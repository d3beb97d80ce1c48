#include "planner/ties.h"

#include <algorithm>

#include "models/check.h"

namespace moeplan::planner {

size_t FirstOfSmallest(std::span<const double> times_s) {
  MOEPLAN_CHECK(!times_s.empty());
  const double tied_s = std::ranges::min(times_s) * (1 + kTie);
  return std::ranges::find_if(times_s, [&](double time_s) { return time_s <= tied_s; }) - times_s.begin();
}

}  // namespace moeplan::planner
