// Where a curve changes its behaviour: protocol switches.
//
// The curve is cut into runs of at least two sizes, each with a line of its own (alpha, beta >= 0, relative residuals);
// the cut of least misfit is taken, where every run more must earn its two parameters and its place. Misfit counts in
// standard deviations of noise plus 2 %, because no real regime is a line to the last per cent. Pure.
#pragma once

#include <vector>

#include "models/fit/screen.h"

namespace moeplan {

// The first measured size of each new regime, rising.
std::vector<double> FindBreakpoints(const Screened& screened);

}  // namespace moeplan
