// From measurements to cost models: robust to outliers, honest about error (design.md §3).
//
// FitCurve turns all repeats of one key, over sizes, into a CostModel whose form was chosen by cross-validated error,
// with intervals, breakpoints and the count of rejected measurements. FitProfile does so for every key of a set.
// Pure and deterministic: the same samples give the same profile to the bit.
#pragma once

#include <vector>

#include "models/cost/cost_model.h"
#include "models/cost/profile.h"
#include "models/cost/samples.h"
#include "models/status.h"

namespace moeplan {

struct SizedTimes {
  double size = 0;
  std::vector<double> times_s;  // Repeats.
};

// The robust line: alpha, beta >= 0, relative residuals; a third of the measurements ten times too slow move neither
// by more than a few per cent. With 90 % intervals in FitQuality's fields. Requires one size at least.
struct LineFit {
  AlphaBeta line;
  double alpha_low_s = 0, alpha_high_s = 0;
  double beta_low_s_per_unit = 0, beta_high_s_per_unit = 0;
};
LineFit FitLine(const std::vector<SizedTimes>& measurements);

// Sizes may come in any order and more than once; repeats of one size are merged.
CostModel FitCurve(std::vector<SizedTimes> measurements);

// One model for each key of `samples` (merged over equal keys), sorted by key; name and cluster are copied.
StatusOr<Profile> FitProfile(const SampleSet& samples);

}  // namespace moeplan
