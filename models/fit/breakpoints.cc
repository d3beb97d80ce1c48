#include "models/fit/breakpoints.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "models/cost/cost_model.h"
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

// The best line through a run of points (alpha, beta >= 0, as WeightedLine), from sums that a further point is added to
// in constant time. About the means, since weights in relative error span ten decades, in which raw moments cancel.
class RunningLine {
 public:
  // `weight` of the squared residual in seconds.
  void Add(const TimePoint& point, double weight) {
    weight_ += weight;
    const double share = weight / weight_;
    const double size_step = point.size - mean_size_, time_step = point.time_s - mean_time_;
    mean_size_ += share * size_step;
    mean_time_ += share * time_step;
    size_size_ += weight * size_step * (point.size - mean_size_);
    size_time_ += weight * size_step * (point.time_s - mean_time_);
    time_time_ += weight * time_step * (point.time_s - mean_time_);
  }

  // Weighted squared residuals.
  double Misfit() const {
    const double beta = size_size_ > 0 ? size_time_ / size_size_ : 0;
    const bool through_origin = mean_time_ - beta * mean_size_ < 0 || size_size_ == 0;
    if (through_origin) {
      const double raw_size_size = size_size_ + weight_ * mean_size_ * mean_size_;
      const double raw_size_time = size_time_ + weight_ * mean_size_ * mean_time_;
      const double rate = raw_size_time / raw_size_size, offset = mean_time_ - rate * mean_size_;
      return std::max(0.0, time_time_ - 2 * rate * size_time_ + rate * rate * size_size_ + weight_ * offset * offset);
    }
    return std::max(0.0, beta < 0 ? time_time_ : time_time_ - beta * size_time_);
  }

 private:
  double weight_ = 0, mean_size_ = 0, mean_time_ = 0;
  double size_size_ = 0, size_time_ = 0, time_time_ = 0;
};

}  // namespace

std::vector<double> FindBreakpoints(const Screened& screened) {
  const MeasuredCurve curve = CurveOf(screened);
  const size_t count = curve.points.size();
  // cost[last]: the least cost of the first `last` points; start[last]: where its last run starts.
  std::vector<double> cost(count + 1, std::numeric_limits<double>::infinity());
  std::vector<size_t> start(count + 1, 0);
  cost[0] = 0;
  for (size_t last = kShortestRun; last <= count; ++last) {
    RunningLine line;
    for (size_t first = last; first-- > 0;) {
      const TimePoint& point = curve.points[first];
      line.Add(point, 1 / (curve.variances[first] * point.time_s * point.time_s));
      if (last - first < kShortestRun) continue;
      const double through = cost[first] + kRunCost + line.Misfit();
      if (through <= cost[last]) cost[last] = through, start[last] = first;
    }
  }
  std::vector<double> breakpoints;
  for (size_t at = start[count]; at > 0; at = start[at]) breakpoints.push_back(curve.points[at].size);
  std::reverse(breakpoints.begin(), breakpoints.end());
  return breakpoints;
}

}  // namespace moeplan
