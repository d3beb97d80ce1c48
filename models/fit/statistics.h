// The few order statistics and quantiles that fits need. Pure.
#pragma once

#include <vector>

namespace moeplan {

// Requires one value at least.
double Median(std::vector<double> values);

// The value below which `share` of the values lie, by nearest rank. Requires one value at least.
double Quantile(std::vector<double> values, double share);
// The width of the middle half.
double InterquartileRange(const std::vector<double>& values);

// Where the median of the distribution lies, 90 % of the time, by rank: between the k-th smallest and the k-th largest
// value, k the largest with 2·P(Binomial(n, 1/2) < k) <= 0.1; true for any distribution. Fewer than five values cannot
// say so: low is -infinity and high infinity.
struct MedianInterval {
  double low = 0, high = 0;
};
MedianInterval MedianInterval90(std::vector<double> values);

// The 95 % quantile of Student's t: the half width of a 90 % interval in standard errors.
double StudentQuantile95(double degrees_of_freedom);

// A bound that the next of these exchangeable magnitudes keeps with probability 0.9; 0 when there are none.
//
// With n >= 9 values this is the ceil(0.9·(n + 1))-th smallest (conformal prediction: true for any distribution). Fewer
// values cannot say so by rank, since the next one exceeds them all with probability 1 / (n + 1) > 0.1; then the
// largest is stretched by the c for which the next of n exponential magnitudes (Laplace errors) exceeds c times the
// largest with probability Γ(n + 1)·Γ(c + 1) / Γ(n + c + 1) = 0.1: c = 9 for one value, 3.0 for two, 1 for nine.
double NextMagnitudeBound90(std::vector<double> magnitudes);

}  // namespace moeplan
