// A line alpha + beta·size through measured sizes, in relative error, that a third of wrong sizes does not move.
//
// Start: of the lines through two sizes, the one whose two thirds best residuals are least (least trimmed squares).
// Then Tukey's bisquare by reweighting, each size weighing 1 / (noise of its mean + misfit of the line), since a real
// curve is no line and nine repeats do not make its size more of one. alpha, beta >= 0 throughout. Pure.
#pragma once

#include <span>
#include <vector>

#include "models/cost/cost_model.h"
#include "models/fit/screen.h"

namespace moeplan {

// 90 % intervals. A line of two sizes has no residual: its intervals are all that alpha, beta >= 0 allow.
struct LineFit {
  AlphaBeta line;
  double alpha_low_s = 0, alpha_high_s = 0;
  double beta_low_s_per_unit = 0, beta_high_s_per_unit = 0;
};

// One size alone gives a line through the origin: a rate.
LineFit FitRobustLine(const Screened& screened);

// For each size, the line fitted without it: the robust weights of the whole fit kept, this size's set to 0.
// Requires three sizes.
std::vector<AlphaBeta> LinesWithoutEachSize(const Screened& screened);

// The line of least sum of weights·(time - line)², alpha, beta >= 0. Requires one weight above 0.
AlphaBeta WeightedLine(std::span<const TimePoint> points, std::span<const double> weights);

}  // namespace moeplan
