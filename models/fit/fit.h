// From measurements to cost models: robust to outliers, honest about error (design.md §3).
//
// FitCurve turns all repeats of one key, over sizes, into a CostModel whose form was chosen by cross-validated error,
// with intervals, breakpoints and the count of rejected measurements. FitProfile does so for every key of a set.
// Pure and deterministic: the same samples give the same profile to the bit. Sizes and times are possible ones
// (IsPossible, models/cost/samples.h), and every number of a fit is then finite and not negative. Sizes may come in any
// order and more than once, and repeats of one size are merged.
// Of a curve of very many sizes, FitCurve and FitLine take some (fitted_sizes.h).
#pragma once

#include <functional>
#include <stop_token>
#include <vector>

#include "models/cost/cost_model.h"
#include "models/cost/profile.h"
#include "models/cost/samples.h"
#include "models/fit/robust_line.h"
#include "models/fit/screen.h"
#include "models/status.h"

namespace moeplan {

// The robust line: alpha, beta >= 0, relative residuals; a third of the measurements ten times too slow move neither
// by more than a few per cent. With 90 % intervals. Requires one time at least.
LineFit FitLine(const std::vector<SizedTimes>& measurements);

// The model that plans, with its FitQuality. Requires one time at least.
//
// The form is the one of least leave-one-out error among logLog, interpolated and alphaBeta, except that logLog stays
// unless another is better by a clear margin; alphaBeta is no candidate where there is a breakpoint. `efficiency` is no
// candidate: its time depends on a bus factor, which repeats of one key say nothing about. Points of logLog and
// interpolated are the medians of the repeats that were not rejected, so a lone sound measurement is a point as it
// stands. The summary is FitLine's, unless the curve is that line itself. A breakpoint is the first measured size of
// the new regime.
CostModel FitCurve(const std::vector<SizedTimes>& measurements);

// One model for each key of `samples` (merged over equal keys), sorted by key; name and cluster are copied. Samples
// that ValidateSamples refuses are kInvalidInput; kCancelled: `stop` was requested before the last key was fitted.
// `fit_curve`, where it is given, answers what FitCurve would, such as from memory.
using CurveFit = std::function<CostModel(const CostKey& key, const std::vector<SizedTimes>& measurements)>;
StatusOr<Profile> FitProfile(const SampleSet& samples, const std::stop_token& stop = {},
                             const CurveFit& fit_curve = nullptr);

}  // namespace moeplan
