// How well each form of cost model predicts a size that was not measured.
//
// Every inner size is left out in turn and predicted from the others. An interpolating form then spans a gap about
// twice as wide as the gaps it will span in use, so its error is too large. How much too large is the curve's own: the
// mean squared error across chords of one, two and three gaps to each side is split into parts (>= 0) that grow with
// the chord's width in a known way, and each part is taken back to the true gap:
//   noise and jumps   not at all: no narrower gap mends them;
//   kinks             error as the width: a chord across the corner of two straight pieces;
//   bends             error as the width squared: a chord along a smooth curve.
// A line spans no gap and is not scaled. Errors are natural logarithms of measured / predicted.
#pragma once

#include <vector>

#include "models/cost/cost_model.h"
#include "models/fit/screen.h"

namespace moeplan {

struct FormErrors {
  std::vector<double> left_out;  // As left out.
  std::vector<double> in_use;    // As expected between measured sizes.
};

// All three are empty below three sizes.
FormErrors LogLogErrors(const std::vector<TimePoint>& points);
FormErrors InterpolatedErrors(const std::vector<TimePoint>& points);
FormErrors LineErrors(const Screened& screened, const std::vector<TimePoint>& points);

// The r for which 90 % of new measurements lie in predicted time × [1/r, r]: form error and spread of repeats, each by
// NextMagnitudeBound90, added in squares.
double IntervalRatio(const FormErrors& errors, const Screened& screened);

}  // namespace moeplan
