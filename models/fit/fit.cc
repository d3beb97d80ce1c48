#include "models/fit/fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "models/fit/breakpoints.h"
#include "models/fit/cross_validation.h"
#include "models/fit/fitted_sizes.h"
#include "models/fit/statistics.h"

namespace moeplan {
namespace {

// Another form must beat logLog by this factor: less is a tie, and logLog bends at every point it was given.
constexpr double kClearlyBetter = 0.9;

// Smaller errors are as good as none.
constexpr double kExact = 1e-6;

struct Candidate {
  Curve curve;
  FormErrors errors;
};

std::vector<TimePoint> Medians(const Screened& screened) {
  std::vector<TimePoint> points;
  for (const ScreenedSize& repeats : screened.sizes) points.push_back({repeats.size, std::exp(repeats.LogMedian())});
  return points;
}

double MeanMagnitude(const std::vector<double>& errors) {
  double sum = 0;
  for (const double error : errors) sum += std::abs(error);
  return std::max(kExact, sum / static_cast<double>(errors.size()));
}

// What may replace logLog, the simplest first. A curve with breakpoints is no line, whatever the mean error says.
std::vector<Candidate> OtherForms(const Screened& screened, const std::vector<TimePoint>& points, const AlphaBeta& line,
                                  bool one_regime) {
  std::vector<Candidate> forms;
  if (points.size() < 3) return forms;
  if (one_regime) forms.push_back({line, LineErrors(screened, points)});
  forms.push_back({Interpolated{points}, InterpolatedErrors(points)});
  return forms;
}

Candidate ChooseForm(const Screened& screened, const AlphaBeta& line, bool one_regime) {
  const std::vector<TimePoint> points = Medians(screened);
  Candidate best = {LogLog{points}, LogLogErrors(points)};
  for (Candidate& candidate : OtherForms(screened, points, line, one_regime)) {
    const double bar = kClearlyBetter * MeanMagnitude(best.errors.in_use);
    if (MeanMagnitude(candidate.errors.in_use) < bar) best = std::move(candidate);
  }
  return best;
}

// |predicted / measured - 1| of each left-out size; without any, of the repeats about their median.
std::vector<double> RelativeErrors(const Screened& screened, const FormErrors& errors) {
  std::vector<double> relative;
  for (const double error : errors.left_out) relative.push_back(std::abs(std::expm1(-error)));
  if (!relative.empty()) return relative;
  for (const ScreenedSize& repeats : screened.sizes) {
    for (const double log_time : repeats.log_times) {
      relative.push_back(std::abs(std::expm1(repeats.LogMedian() - log_time)));
    }
  }
  return relative;
}

FitQuality QualityOf(const Screened& screened, const LineFit& line, const Candidate& chosen,
                     std::vector<double> breakpoints) {
  FitQuality quality;
  quality.chosen = FormName(chosen.curve);
  const std::vector<double> relative_errors = RelativeErrors(screened, chosen.errors);
  quality.relative_error_p50 = Quantile(relative_errors, 0.5);
  quality.relative_error_p95 = Quantile(relative_errors, 0.95);
  quality.alpha_low_s = line.alpha_low_s;
  quality.alpha_high_s = line.alpha_high_s;
  quality.beta_low_s_per_unit = line.beta_low_s_per_unit;
  quality.beta_high_s_per_unit = line.beta_high_s_per_unit;
  quality.interval_high_ratio = IntervalRatio(chosen.errors, screened);
  quality.interval_low_ratio = 1 / quality.interval_high_ratio;
  quality.breakpoints = std::move(breakpoints);
  quality.outliers = screened.outliers;
  quality.points = screened.points;
  return quality;
}

std::vector<SizedSpan> FittedSpans(const std::vector<SizedTimes>& measurements) {
  const std::vector<SizedSpan> all = SpansOf(measurements);
  const std::vector<bool> fitted = AreFitted(all);
  std::vector<SizedSpan> spans;
  for (size_t i = 0; i < all.size(); ++i) {
    if (fitted[i]) spans.push_back(all[i]);
  }
  return spans;
}

template <typename Key>
using MeasurementsByKey = std::map<Key, std::vector<SizedTimes>>;

template <typename Entries, typename Key>
void AppendFits(Entries& entries, const MeasurementsByKey<Key>& by_key, const std::stop_token& stop,
                const CurveFit& fit_curve) {
  for (const auto& [key, measurements] : by_key) {
    if (stop.stop_requested()) return;
    entries.push_back({key, fit_curve ? fit_curve(key, measurements) : FitCurve(measurements)});
  }
}

}  // namespace

LineFit FitLine(const std::vector<SizedTimes>& measurements) {
  return FitRobustLine(Screen(FittedSpans(measurements)));
}

CostModel FitCurve(const std::vector<SizedTimes>& measurements) {
  const Screened screened = Screen(FittedSpans(measurements));
  const LineFit line = FitRobustLine(screened);
  std::vector<double> breakpoints = FindBreakpoints(screened);
  const Candidate chosen = ChooseForm(screened, line.line, breakpoints.empty());
  CostModel model = MakeCostModel(chosen.curve);
  if (!std::holds_alternative<AlphaBeta>(chosen.curve)) model.summary = line.line;
  model.fit = QualityOf(screened, line, chosen, std::move(breakpoints));
  model.size_low = screened.sizes.front().size;
  model.size_high = screened.sizes.back().size;
  return model;
}

StatusOr<Profile> FitProfile(const SampleSet& samples, const std::stop_token& stop, const CurveFit& fit_curve) {
  RETURN_IF_ERROR(ValidateSamples(samples));
  MeasurementsByKey<CollectiveKey> collectives;
  MeasurementsByKey<KernelKey> kernels;
  for (const Sample& sample : samples.samples) {
    const SizedTimes measurement = {sample.size, sample.times_s};
    if (const auto* key = std::get_if<CollectiveKey>(&sample.key)) collectives[*key].push_back(measurement);
    if (const auto* key = std::get_if<KernelKey>(&sample.key)) kernels[*key].push_back(measurement);
  }
  Profile profile;
  profile.name = samples.name;
  profile.cluster = samples.cluster;
  AppendFits(profile.collectives, collectives, stop, fit_curve);
  AppendFits(profile.kernels, kernels, stop, fit_curve);
  if (stop.stop_requested()) return Cancelled("the fit was stopped");
  return profile;
}

}  // namespace moeplan
