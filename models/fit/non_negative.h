// Least squares whose unknowns are not negative, from the normal equations.
#pragma once

#include <vector>

namespace moeplan {

// The x >= 0 of least x'·gram·x / 2 - moment'·x, by the active sets of Lawson and Hanson ("Solving Least Squares
// Problems", chapter 23): unknowns are freed one by one, the steepest first, and fixed at 0 again where a step would
// make them negative. `gram` is symmetric and positive definite, row after row; size() = moment.size()². Pure.
std::vector<double> NonNegativeMinimum(const std::vector<double>& gram, const std::vector<double>& moment);

}  // namespace moeplan
