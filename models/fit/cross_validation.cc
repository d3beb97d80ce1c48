#include "models/fit/cross_validation.h"

#include <Eigen/Core>
#include <Eigen/QR>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "models/fit/robust_line.h"
#include "models/fit/statistics.h"

namespace moeplan {
namespace {

using Points = std::vector<TimePoint>;

constexpr size_t kReaches = 3;
constexpr double kExactSquared = 1e-18;  // Rounding, of which no growth can be told.

double LogGap(const TimePoint& a, const TimePoint& b) { return std::log(b.size / a.size); }

// The error at point i of a form through the points `reach` before and after it alone.
template <typename Form>
double ErrorAcross(const Points& points, size_t i, size_t reach) {
  const Curve chord = Form{{points[i - reach], points[i + reach]}};
  return std::log(points[i].time_s / TimeS(chord, points[i].size, /*bus_factor=*/1));
}

struct Chord {
  double gap = 0;            // Mean width, in log size.
  double error_squared = 0;  // Mean over all inner points that have such a chord.
};

template <typename Form>
Chord MeanChord(const Points& points, size_t reach) {
  Chord chord;
  for (size_t i = reach; i + reach < points.size(); ++i) {
    chord.gap += LogGap(points[i - reach], points[i + reach]);
    chord.error_squared += std::pow(ErrorAcross<Form>(points, i, reach), 2);
  }
  const auto count = static_cast<double>(points.size() - 2 * reach);
  return {chord.gap / count, chord.error_squared / count};
}

// Shares of the squared error across the narrowest chords: noise, kinks, bends.
using Shares = Eigen::Vector3d;
const Shares kAllNoise(1, 0, 0);

// The parts >= 0 that reproduce the three errors best in relative terms, the fewest that do.
Shares SplitErrors(const std::array<Chord, kReaches>& chords) {
  Eigen::Matrix3d growth;
  for (size_t i = 0; i < kReaches; ++i) {
    const double widening = chords[i].gap / chords[0].gap;
    growth.row(static_cast<Eigen::Index>(i)) << 1, std::pow(widening, 2), std::pow(widening, 4);
    growth.row(static_cast<Eigen::Index>(i)) /= chords[i].error_squared;
  }
  Shares best = kAllNoise;
  double best_misfit = std::numeric_limits<double>::infinity();
  for (const std::vector<int>& parts :
       std::vector<std::vector<int>>{{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}}) {
    const Eigen::MatrixXd columns = growth(Eigen::all, parts);
    const Eigen::VectorXd sizes = columns.colPivHouseholderQr().solve(Eigen::Vector3d::Ones());
    if (sizes.minCoeff() < 0) continue;
    const double misfit = (columns * sizes - Eigen::Vector3d::Ones()).squaredNorm();
    if (misfit + 1e-9 >= best_misfit) continue;
    best_misfit = misfit;
    best = Shares::Zero();
    best(parts) = sizes / sizes.sum();
  }
  return best;
}

template <typename Form>
Shares ErrorShares(const Points& points) {
  if (points.size() <= 2 * kReaches) return kAllNoise;
  std::array<Chord, kReaches> chords;
  for (size_t reach = 1; reach <= kReaches; ++reach) {
    chords[reach - 1] = MeanChord<Form>(points, reach);
    if (chords[reach - 1].error_squared <= kExactSquared) return kAllNoise;
  }
  return SplitErrors(chords);
}

template <typename Form>
FormErrors ChordErrors(const Points& points) {
  const Shares shares = ErrorShares<Form>(points);
  FormErrors errors;
  for (size_t i = 1; i + 1 < points.size(); ++i) {
    const double true_gap = std::max(LogGap(points[i - 1], points[i]), LogGap(points[i], points[i + 1]));
    const double narrowing = true_gap / LogGap(points[i - 1], points[i + 1]);
    const double error = ErrorAcross<Form>(points, i, 1);
    errors.left_out.push_back(error);
    errors.in_use.push_back(error * std::sqrt(shares.dot(Shares(1, std::pow(narrowing, 2), std::pow(narrowing, 4)))));
  }
  return errors;
}

// How far a repeat lies from its size's true location: farther than from the mean that it is part of, by
// sqrt(n / (n - 1)). The error of that mean is in the form's own errors.
std::vector<double> RepeatDistances(const Screened& screened) {
  std::vector<double> distances;
  for (const ScreenedSize& repeats : screened.sizes) {
    const auto count = static_cast<double>(repeats.log_times.size());
    if (count < 2) continue;
    const double mean = repeats.LogMean();
    for (const double log_time : repeats.log_times) {
      distances.push_back(std::abs(log_time - mean) * std::sqrt(count / (count - 1)));
    }
  }
  return distances;
}

}  // namespace

FormErrors LogLogErrors(const Points& points) { return ChordErrors<LogLog>(points); }

FormErrors InterpolatedErrors(const Points& points) { return ChordErrors<Interpolated>(points); }

FormErrors LineErrors(const Screened& screened, const Points& points) {
  FormErrors errors;
  if (points.size() < 3) return errors;
  const std::vector<AlphaBeta> lines = LinesWithoutEachSize(screened);
  for (size_t i = 1; i + 1 < points.size(); ++i) {
    errors.left_out.push_back(std::log(points[i].time_s / TimeS(lines[i], points[i].size, /*bus_factor=*/1)));
  }
  errors.in_use = errors.left_out;
  return errors;
}

double IntervalRatio(const FormErrors& errors, const Screened& screened) {
  std::vector<double> magnitudes;
  for (const double error : errors.in_use) magnitudes.push_back(std::abs(error));
  return std::exp(
      std::hypot(NextMagnitudeBound90(std::move(magnitudes)), NextMagnitudeBound90(RepeatDistances(screened))));
}

}  // namespace moeplan
