#include "models/fit/robust_line.h"

#include <Eigen/Core>
#include <Eigen/LU>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "models/fit/statistics.h"

namespace moeplan {
namespace {

constexpr double kBisquareDeviations = 4.685;  // 95 % efficient on normal noise.
constexpr double kSmallestVariance = 1e-12;    // So that an exact line has weights.
constexpr int kReweightings = 10;              // At each width of the cutoff.
constexpr size_t kMaxStartSizes = 32;          // Bounds the starts to 496 lines however many sizes there are.

struct Points {
  std::vector<TimePoint> means;         // Geometric mean of the repeats.
  std::vector<double> noise_variances;  // Of the mean's logarithm.
};

Points PointsOf(const Screened& screened) {
  Points points;
  for (const ScreenedSize& repeats : screened.sizes) {
    points.means.push_back({repeats.size, std::exp(repeats.LogMean())});
    points.noise_variances.push_back(screened.noise * screened.noise / static_cast<double>(repeats.log_times.size()));
  }
  return points;
}

double At(const AlphaBeta& line, double size) { return line.alpha_s + line.beta_s_per_unit * size; }

double LogResidual(const AlphaBeta& line, const TimePoint& point) {
  return std::log(point.time_s / At(line, point.size));
}

double TrimmedSquares(const AlphaBeta& line, const std::vector<TimePoint>& points) {
  std::vector<double> squares;
  for (const TimePoint& point : points) squares.push_back(std::pow(LogResidual(line, point), 2));
  const auto kept = static_cast<ptrdiff_t>(points.size() - (points.size() - 2) / 2);
  std::nth_element(squares.begin(), squares.begin() + kept - 1, squares.end());
  double sum = 0;
  for (ptrdiff_t i = 0; i < kept; ++i) sum += squares[static_cast<size_t>(i)];
  return sum;
}

AlphaBeta Through(const TimePoint& a, const TimePoint& b) {
  const TimePoint points[] = {a, b};
  const double weights[] = {1 / (a.time_s * a.time_s), 1 / (b.time_s * b.time_s)};
  return WeightedLine(points, weights);
}

AlphaBeta LeastTrimmedSquares(const std::vector<TimePoint>& points) {
  const size_t stride = (points.size() + kMaxStartSizes - 1) / kMaxStartSizes;
  AlphaBeta best;
  double best_squares = std::numeric_limits<double>::infinity();
  for (size_t j = stride; j < points.size(); j += stride) {
    for (size_t i = 0; i < j; i += stride) {
      const AlphaBeta line = Through(points[i], points[j]);
      const double squares = TrimmedSquares(line, points);
      if (squares < best_squares) best_squares = squares, best = line;
    }
  }
  return best;
}

// The variance of the line's misfit beyond the noise of the means.
double MisfitVariance(const AlphaBeta& line, const Points& points) {
  std::vector<double> residuals;
  for (const TimePoint& point : points.means) residuals.push_back(std::abs(LogResidual(line, point)));
  const double spread = 1.4826 * Median(std::move(residuals));
  return std::max(kSmallestVariance, spread * spread - Median(points.noise_variances));
}

double Variance(const Points& points, size_t i, double misfit_variance) {
  return misfit_variance + points.noise_variances[i];
}

// Residuals in standard deviations, as shares of the bisquare's cutoff.
std::vector<double> CutoffShares(const AlphaBeta& line, const Points& points, double misfit_variance, double cutoff) {
  std::vector<double> shares;
  for (size_t i = 0; i < points.means.size(); ++i) {
    shares.push_back(LogResidual(line, points.means[i]) / std::sqrt(Variance(points, i, misfit_variance)) / cutoff);
  }
  return shares;
}

// 1 / variance of each size's relative residual, times the trust that it belongs to the line.
std::vector<double> RobustWeights(const AlphaBeta& line, const Points& points, double misfit_variance, double cutoff) {
  std::vector<double> weights = CutoffShares(line, points, misfit_variance, cutoff);
  for (size_t i = 0; i < weights.size(); ++i) {
    const double share = weights[i];
    const double trust = std::abs(share) >= 1 ? 0 : std::pow(1 - share * share, 2);
    weights[i] = trust / Variance(points, i, misfit_variance);
  }
  return weights;
}

// One step of least squares in relative error. Dividing by the line's own times, not the measured ones, keeps noise
// from pulling the line down. A line that no size is trusted to belong to stays as it is.
AlphaBeta Refitted(const AlphaBeta& line, const std::vector<TimePoint>& points, std::vector<double> relative_weights) {
  if (std::ranges::all_of(relative_weights, [](double weight) { return weight <= 0; })) return line;
  for (size_t i = 0; i < points.size(); ++i) relative_weights[i] /= std::pow(At(line, points[i].size), 2);
  return WeightedLine(points, relative_weights);
}

struct WeightedFit {
  AlphaBeta line;
  double misfit_variance = 0;
};

// The cutoff starts wide and narrows: the start ignores up to half the sizes, and where those are the few that know
// alpha (or beta) a narrow cutoff would never let them back in.
WeightedFit FitWeighted(const Points& points) {
  WeightedFit fit = {.line = LeastTrimmedSquares(points.means)};
  for (double widening = 8; widening >= 1; widening /= 2) {
    fit.misfit_variance = MisfitVariance(fit.line, points);
    for (int i = 0; i < kReweightings; ++i) {
      fit.line = Refitted(fit.line, points.means,
                          RobustWeights(fit.line, points, fit.misfit_variance, widening * kBisquareDeviations));
    }
  }
  return fit;
}

// Huber's variance of a robust estimate over that of least squares: mean of psi² over squared mean of psi'.
double VarianceFactor(const WeightedFit& fit, const Points& points) {
  const auto count = static_cast<double>(points.means.size());
  double psi_squares = 0, psi_slopes = 0;
  for (const double share : CutoffShares(fit.line, points, fit.misfit_variance, kBisquareDeviations)) {
    const double square = share * share;
    if (square >= 1) continue;
    psi_squares += square * std::pow(kBisquareDeviations * (1 - square) * (1 - square), 2);
    psi_slopes += (1 - square) * (1 - 5 * square);
  }
  return psi_squares / (count - 2) / std::pow(std::max(psi_slopes, 1.0) / count, 2);
}

void SetInterval(double value, double deviation, double& low, double& high) {
  low = std::max(0.0, value - deviation);
  high = value + deviation;
}

// All that alpha, beta >= 0 allow below the measured points.
LineFit WithWidestIntervals(const std::vector<TimePoint>& points, const AlphaBeta& line) {
  LineFit result = {.line = line,
                    .alpha_high_s = std::numeric_limits<double>::infinity(),
                    .beta_high_s_per_unit = std::numeric_limits<double>::infinity()};
  for (const TimePoint& point : points) {
    result.alpha_high_s = std::min(result.alpha_high_s, point.time_s);
    result.beta_high_s_per_unit = std::min(result.beta_high_s_per_unit, point.time_s / point.size);
  }
  return result;
}

LineFit WithIntervals(const Points& points, const WeightedFit& fit) {
  const double unit = points.means.back().size;  // Sizes as shares of the largest: a well-conditioned matrix.
  Eigen::Matrix2d information = Eigen::Matrix2d::Zero();
  for (size_t i = 0; i < points.means.size(); ++i) {
    const double time_s = At(fit.line, points.means[i].size);
    const Eigen::Vector2d gradient(1 / time_s, points.means[i].size / unit / time_s);
    information += gradient * gradient.transpose() / Variance(points, i, fit.misfit_variance);
  }
  const Eigen::Matrix2d covariance = information.inverse() * VarianceFactor(fit, points);
  // Sizes that differ by little more than rounding tell alpha from beta as badly as one size does.
  if (!covariance.allFinite() || covariance(0, 0) < 0 || covariance(1, 1) < 0) {
    return WithWidestIntervals(points.means, fit.line);
  }
  const double reach = StudentQuantile95(static_cast<double>(points.means.size()) - 2);
  LineFit result = {.line = fit.line};
  SetInterval(fit.line.alpha_s, reach * std::sqrt(covariance(0, 0)), result.alpha_low_s, result.alpha_high_s);
  SetInterval(fit.line.beta_s_per_unit, reach * std::sqrt(covariance(1, 1)) / unit, result.beta_low_s_per_unit,
              result.beta_high_s_per_unit);
  return result;
}

}  // namespace

AlphaBeta WeightedLine(std::span<const TimePoint> points, std::span<const double> weights) {
  double weight = 0, size = 0, time_s = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    weight += weights[i];
    size += weights[i] * points[i].size;
    time_s += weights[i] * points[i].time_s;
  }
  size /= weight, time_s /= weight;
  // About the means: weights in relative error span ten decades, in which raw moments cancel.
  double size_size = 0, size_time = 0, raw_size_size = 0, raw_size_time = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    size_size += weights[i] * (points[i].size - size) * (points[i].size - size);
    size_time += weights[i] * (points[i].size - size) * (points[i].time_s - time_s);
    raw_size_size += weights[i] * points[i].size * points[i].size;
    raw_size_time += weights[i] * points[i].size * points[i].time_s;
  }
  const double beta = size_size > 0 ? size_time / size_size : 0;
  const double alpha_s = time_s - beta * size;
  if (alpha_s < 0 || size_size == 0) return {.beta_s_per_unit = raw_size_time / raw_size_size};
  if (beta < 0) return {.alpha_s = time_s};
  return {alpha_s, beta};
}

LineFit FitRobustLine(const Screened& screened) {
  const Points points = PointsOf(screened);
  if (points.means.size() == 1) {
    const TimePoint& only = points.means.front();
    return WithWidestIntervals(points.means, {.beta_s_per_unit = only.time_s / only.size});
  }
  if (points.means.size() == 2) return WithWidestIntervals(points.means, Through(points.means[0], points.means[1]));
  return WithIntervals(points, FitWeighted(points));
}

std::vector<AlphaBeta> LinesWithoutEachSize(const Screened& screened) {
  const Points points = PointsOf(screened);
  const WeightedFit whole = FitWeighted(points);
  const std::vector<double> robust = RobustWeights(whole.line, points, whole.misfit_variance, kBisquareDeviations);
  std::vector<AlphaBeta> lines;
  for (size_t i = 0; i < points.means.size(); ++i) {
    std::vector<double> weights = robust;
    weights[i] = 0;
    AlphaBeta line = whole.line;
    for (int step = 0; step < 3; ++step) line = Refitted(line, points.means, weights);
    lines.push_back(line);
  }
  return lines;
}

}  // namespace moeplan
