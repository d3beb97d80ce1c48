#include "models/fit/breakpoints.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "models/fit/robust_line.h"
#include "models/fit/statistics.h"

namespace moeplan {
namespace {

constexpr double kLineTolerance = 0.02;
constexpr size_t kShortestRun = 2;
// Noise makes a further run with two free parameters gain more than x with probability exp(-x / 2): 4e-6 at one place.
constexpr double kRunCost = 25;

struct MeasuredCurve {
  std::vector<TimePoint> points;
  std::vector<double> variances;  // Of the log times, tolerance included.
};

// The noise of single measurements: how far each lies from its neighbours' chord, whose own noise adds a half.
double NoiseFromNeighbours(const std::vector<TimePoint>& points) {
  std::vector<double> distances;
  for (size_t i = 1; i + 1 < points.size(); ++i) {
    const TimePoint &left = points[i - 1], &middle = points[i], &right = points[i + 1];
    const double share = std::log(middle.size / left.size) / std::log(right.size / left.size);
    const double chord = std::lerp(std::log(left.time_s), std::log(right.time_s), share);
    distances.push_back(std::abs(std::log(middle.time_s) - chord));
  }
  return distances.empty() ? 0 : 1.4826 * Median(std::move(distances)) / std::sqrt(1.5);
}

MeasuredCurve CurveOf(const Screened& screened) {
  MeasuredCurve curve;
  for (const ScreenedSize& repeats : screened.sizes)
    curve.points.push_back({repeats.size, std::exp(repeats.LogMean())});
  const bool repeated = screened.noise > 0;
  const double noise = repeated ? screened.noise : NoiseFromNeighbours(curve.points);
  for (const ScreenedSize& repeats : screened.sizes) {
    curve.variances.push_back(noise * noise / static_cast<double>(repeats.log_times.size()) +
                              kLineTolerance * kLineTolerance);
  }
  return curve;
}

// Squared relative residuals, in variances, of the best line through points first .. last - 1.
double Misfit(const MeasuredCurve& curve, size_t first, size_t last) {
  const std::span points(curve.points.data() + first, last - first);
  std::vector<double> weights;
  for (size_t i = first; i < last; ++i) {
    weights.push_back(1 / (curve.variances[i] * curve.points[i].time_s * curve.points[i].time_s));
  }
  const AlphaBeta line = WeightedLine(points, weights);
  double sum = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    sum += weights[i] * std::pow(points[i].time_s - line.alpha_s - line.beta_s_per_unit * points[i].size, 2);
  }
  return sum;
}

}  // namespace

std::vector<double> FindBreakpoints(const Screened& screened) {
  const MeasuredCurve curve = CurveOf(screened);
  const size_t count = curve.points.size();
  // cost[last]: the least cost of the first `last` points; start[last]: where its last run starts.
  std::vector<double> cost(count + 1, std::numeric_limits<double>::infinity());
  std::vector<size_t> start(count + 1, 0);
  cost[0] = 0;
  for (size_t last = kShortestRun; last <= count; ++last) {
    for (size_t first = 0; first + kShortestRun <= last; ++first) {
      const double through = cost[first] + kRunCost + Misfit(curve, first, last);
      if (through < cost[last]) cost[last] = through, start[last] = first;
    }
  }
  std::vector<double> breakpoints;
  for (size_t at = start[count]; at > 0; at = start[at]) breakpoints.push_back(curve.points[at].size);
  std::reverse(breakpoints.begin(), breakpoints.end());
  return breakpoints;
}

}  // namespace moeplan
