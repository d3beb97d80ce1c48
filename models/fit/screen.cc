#include "models/fit/screen.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "models/check.h"
#include "models/fit/fitted_sizes.h"

namespace moeplan {
namespace {

// A third of the measurements may be slow; one in a thousand is too fast.
const double kSlowCost = std::log(0.7 / 0.3);
const double kFastCost = std::log(1e3);
const double kLargestSwitch = std::log(4.0);
constexpr double kJumpCost = 8;
constexpr size_t kMostPaired = 100;
constexpr size_t kMostClusters = 16;  // Of one size.
// Sizes in a row of which nothing is believed; more are no accident.
constexpr size_t kMostSkipped = 8;
// A gap between repeats that splits them: in standard deviations of the noise, and at least 10 %.
constexpr double kSplitDeviations = 5;
const double kSmallestSplit = std::log(1.1);

using Repeats = ScreenedSize;  // All repeats of one size, before the choice.

std::vector<Repeats> MergeSizes(std::span<const SizedSpan> measurements) {
  std::map<double, std::vector<double>> log_times;
  for (const auto& [size, times_s] : measurements) {
    if (times_s.empty()) continue;
    std::vector<double>& of_size = log_times[size];
    for (const double time_s : times_s) of_size.push_back(std::log(time_s));
  }
  std::vector<Repeats> merged;
  for (auto& [size, of_size] : log_times) {
    std::sort(of_size.begin(), of_size.end());
    merged.push_back({size, std::move(of_size)});
  }
  return merged;
}

// Rousseeuw and Croux's Qn over the pairs of repeats of equal size: with a third of the repeats slow it is at most 1.8
// times too large.
double RoughNoise(const std::vector<Repeats>& sizes) {
  std::vector<double> differences;
  for (const auto& [size, log_times] : sizes) {
    // Of very many repeats, evenly spaced ranks: the same distribution from fewer pairs.
    const size_t stride = log_times.size() / kMostPaired + 1;
    for (size_t i = 0; i < log_times.size(); i += stride) {
      for (size_t j = 0; j < i; j += stride) differences.push_back(log_times[i] - log_times[j]);
    }
  }
  if (differences.empty()) return 0;
  const auto quarter = differences.begin() + static_cast<ptrdiff_t>(differences.size() / 4);
  std::nth_element(differences.begin(), quarter, differences.end());
  return 2.2191 * *quarter;
}

double NoiseOf(const std::vector<ScreenedSize>& sizes) {
  double squares = 0;
  size_t degrees_of_freedom = 0;
  for (const ScreenedSize& repeats : sizes) {
    const double mean = repeats.LogMean();
    for (const double log_time : repeats.log_times) squares += (log_time - mean) * (log_time - mean);
    degrees_of_freedom += repeats.log_times.size() - 1;
  }
  return degrees_of_freedom == 0 ? 0 : std::sqrt(squares / static_cast<double>(degrees_of_freedom));
}

// Repeats first .. last - 1 of one size, and what it costs to believe them alone.
struct Cluster {
  size_t size_index = 0;
  size_t first = 0, last = 0;
  double log_time = 0;
  double cost = 0;
};

// Real repeats gather in a few clusters. Those of a stranger may all lie apart, and the choice below takes the square
// of their number: of more than kMostClusters the largest, of equal ones the faster.
void KeepLargest(std::vector<Cluster>& clusters) {
  if (clusters.size() <= kMostClusters) return;
  std::ranges::stable_sort(clusters, std::greater(), [](const Cluster& one) { return one.last - one.first; });
  clusters.resize(kMostClusters);
  std::ranges::sort(clusters, {}, &Cluster::first);
}

std::vector<Cluster> ClustersOf(const Repeats& repeats, size_t size_index, double split) {
  const auto& log_times = repeats.log_times;
  std::vector<Cluster> clusters;
  for (size_t first = 0, i = 1; i <= log_times.size(); ++i) {
    if (i < log_times.size() && log_times[i] - log_times[i - 1] <= split) continue;
    const double fast = static_cast<double>(first), slow = static_cast<double>(log_times.size() - i);
    clusters.push_back({size_index, first, i, (log_times[(first + i - 1) / 2] + log_times[(first + i) / 2]) / 2,
                        fast * kFastCost + slow * kSlowCost});
    first = i;
  }
  KeepLargest(clusters);
  return clusters;
}

double JumpCost(const std::vector<Repeats>& sizes, const Cluster& from, const Cluster& to) {
  const double rise = to.log_time - from.log_time;
  const double growth = std::log(sizes[to.size_index].size / sizes[from.size_index].size);
  return kJumpCost * std::max({0.0, rise - growth - kLargestSwitch, -rise - kLargestSwitch});
}

// What it costs to believe nothing of a size where `log_time` was to be expected.
double SkipCost(const Repeats& repeats, double log_time) {
  const auto slow = std::ranges::lower_bound(repeats.log_times, log_time);
  return static_cast<double>(slow - repeats.log_times.begin()) * kFastCost +
         static_cast<double>(repeats.log_times.end() - slow) * kSlowCost;
}

// The sizes between two believed ones, expected on the chord.
double SkipCostBetween(const std::vector<Repeats>& sizes, const Cluster& from, const Cluster& to) {
  const double first = std::log(sizes[from.size_index].size), last = std::log(sizes[to.size_index].size);
  double cost = 0;
  for (size_t i = from.size_index + 1; i < to.size_index; ++i) {
    const double share = (std::log(sizes[i].size) - first) / (last - first);
    cost += SkipCost(sizes[i], std::lerp(from.log_time, to.log_time, share));
  }
  return cost;
}

// Below the first believed size a time is too fast where its bandwidth is higher; above the last, where it is shorter.
double SkipCostBefore(const std::vector<Repeats>& sizes, const Cluster& first) {
  double cost = 0;
  for (size_t i = 0; i < first.size_index; ++i) {
    cost += SkipCost(sizes[i], first.log_time + std::log(sizes[i].size / sizes[first.size_index].size));
  }
  return cost;
}
double SkipCostAfter(const std::vector<Repeats>& sizes, const Cluster& last) {
  double cost = 0;
  for (size_t i = last.size_index + 1; i < sizes.size(); ++i) cost += SkipCost(sizes[i], last.log_time);
  return cost;
}

std::vector<Cluster> AllClusters(const std::vector<Repeats>& sizes, double split) {
  std::vector<Cluster> all;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::vector<Cluster> clusters = ClustersOf(sizes[i], i, split);
    all.insert(all.end(), clusters.begin(), clusters.end());
  }
  return all;
}

// The cheapest chain of clusters, at most one for each size: a shortest path from left to right.
std::vector<Cluster> CheapestChain(const std::vector<Repeats>& sizes, double split) {
  const std::vector<Cluster> clusters = AllClusters(sizes, split);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  std::vector<double> cost(clusters.size());
  std::vector<size_t> previous(clusters.size(), kNone);
  size_t best_last = kNone;
  double best_cost = kInfinity;
  for (size_t to = 0; to < clusters.size(); ++to) {
    const size_t at = clusters[to].size_index;
    cost[to] = at <= kMostSkipped ? SkipCostBefore(sizes, clusters[to]) : kInfinity;
    for (size_t from = to; from-- > 0 && at - clusters[from].size_index <= kMostSkipped + 1;) {
      if (clusters[from].size_index == at) continue;
      const double through = cost[from] + SkipCostBetween(sizes, clusters[from], clusters[to]) +
                             JumpCost(sizes, clusters[from], clusters[to]);
      if (through < cost[to]) cost[to] = through, previous[to] = from;
    }
    cost[to] += clusters[to].cost;
    if (sizes.size() - at > kMostSkipped + 1) continue;
    if (const double whole = cost[to] + SkipCostAfter(sizes, clusters[to]); whole < best_cost) {
      best_cost = whole;
      best_last = to;
    }
  }
  std::vector<Cluster> chain;
  for (size_t at = best_last; at != kNone; at = previous[at]) chain.push_back(clusters[at]);
  std::reverse(chain.begin(), chain.end());
  return chain;
}

std::vector<ScreenedSize> Believed(const std::vector<Repeats>& sizes, double noise) {
  std::vector<ScreenedSize> believed;
  for (const Cluster& cluster : CheapestChain(sizes, std::max(kSplitDeviations * noise, kSmallestSplit))) {
    const auto begin = sizes[cluster.size_index].log_times.begin();
    believed.push_back({sizes[cluster.size_index].size,
                        {begin + static_cast<ptrdiff_t>(cluster.first), begin + static_cast<ptrdiff_t>(cluster.last)}});
  }
  return believed;
}

int CountTimes(const std::vector<ScreenedSize>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), 0, [](int sum, const ScreenedSize& repeats) {
    return sum + static_cast<int>(repeats.log_times.size());
  });
}

}  // namespace

double ScreenedSize::LogMedian() const {
  return (log_times[(log_times.size() - 1) / 2] + log_times[log_times.size() / 2]) / 2;
}

double ScreenedSize::LogMean() const {
  return std::accumulate(log_times.begin(), log_times.end(), 0.0) / static_cast<double>(log_times.size());
}

std::vector<SizedSpan> SpansOf(const std::vector<SizedTimes>& measurements) {
  std::vector<SizedSpan> spans;
  for (const SizedTimes& measurement : measurements) spans.push_back({measurement.size, measurement.times_s});
  return spans;
}

Screened Screen(std::span<const SizedSpan> measurements) {
  const std::vector<Repeats> sizes = MergeSizes(measurements);
  MOEPLAN_CHECK(!sizes.empty());
  // The rough noise is too large where there are outliers; the noise of what it believes is not.
  const double noise = NoiseOf(Believed(sizes, RoughNoise(sizes)));
  Screened screened;
  screened.sizes = Believed(sizes, noise);
  screened.noise = NoiseOf(screened.sizes);
  screened.outliers = CountTimes(sizes) - CountTimes(screened.sizes);
  screened.points = static_cast<int>(sizes.size());
  return screened;
}

std::vector<std::vector<int>> OutliersOf(std::span<const SizedSpan> measurements) {
  const std::vector<bool> fitted = AreFitted(measurements);
  std::vector<SizedSpan> screened_ones;
  for (size_t i = 0; i < measurements.size(); ++i) {
    if (fitted[i]) screened_ones.push_back(measurements[i]);
  }
  const Screened screened = Screen(screened_ones);
  std::vector<std::vector<int>> outliers(measurements.size());
  for (size_t i = 0; i < measurements.size(); ++i) {
    if (!fitted[i]) continue;
    const auto& [size, times_s] = measurements[i];
    const auto believed = std::ranges::lower_bound(screened.sizes, size, {}, &ScreenedSize::size);
    const bool known = believed != screened.sizes.end() && believed->size == size;
    for (size_t repeat = 0; repeat < times_s.size(); ++repeat) {
      // What is believed of a size is a run of its sorted repeats.
      const double log_time = std::log(times_s[repeat]);
      if (known && believed->log_times.front() <= log_time && log_time <= believed->log_times.back()) continue;
      outliers[i].push_back(static_cast<int>(repeat));
    }
  }
  return outliers;
}

}  // namespace moeplan
