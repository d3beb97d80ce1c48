#include "models/fit/fitted_sizes.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

namespace moeplan {
namespace {

// The place of a size among so many equal steps of log size from low to high.
size_t StepOf(double size, double low, double high, int steps) {
  const double share = std::log(size / low) / std::log(high / low);
  return static_cast<size_t>(std::clamp(static_cast<int>(share * steps), 0, steps - 1));
}

std::set<double> Chosen(const std::map<double, size_t>& repeats) {
  const double low = repeats.begin()->first, high = repeats.rbegin()->first;
  constexpr int kSteps = kMostFittedSizes - 2;
  std::vector<std::pair<size_t, double>> best(kSteps);  // Repeats and size.
  for (const auto& [size, count] : repeats) {
    std::pair<size_t, double>& of_step = best[StepOf(size, low, high, kSteps)];
    if (count > of_step.first) of_step = {count, size};
  }
  std::set<double> chosen = {low, high};
  for (const auto& [count, size] : best) {
    if (count > 0) chosen.insert(size);
  }
  return chosen;
}

}  // namespace

std::vector<bool> AreFitted(std::span<const SizedSpan> measurements) {
  std::map<double, size_t> repeats;
  for (const auto& [size, times_s] : measurements) {
    if (!times_s.empty()) repeats[size] += times_s.size();
  }
  std::vector<bool> fitted(measurements.size(), true);
  if (std::ssize(repeats) <= kMostFittedSizes) return fitted;
  const std::set<double> chosen = Chosen(repeats);
  for (size_t i = 0; i < measurements.size(); ++i) fitted[i] = chosen.contains(measurements[i].size);
  return fitted;
}

}  // namespace moeplan
