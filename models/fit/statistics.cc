#include "models/fit/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "models/check.h"

namespace moeplan {
namespace {

double NthSmallest(std::vector<double>& values, size_t n) {
  const auto nth = values.begin() + static_cast<ptrdiff_t>(n);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

// ln of Γ(n + 1)·Γ(c + 1) / Γ(n + c + 1) for whole n: the product of k / (c + k) over k = 1 … n.
double LogExceedance(size_t n, double stretch) {
  double sum = 0;
  for (size_t k = 1; k <= n; ++k) sum += std::log(static_cast<double>(k) / (stretch + static_cast<double>(k)));
  return sum;
}

double StretchForFew(size_t n) {
  double low = 1, high = 9;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (LogExceedance(n, middle) > std::log(0.1) ? low : high) = middle;
  }
  return high;
}

}  // namespace

double Median(std::vector<double> values) {
  MOEPLAN_CHECK(!values.empty());
  const double upper = NthSmallest(values, values.size() / 2);
  return values.size() % 2 == 1 ? upper : (upper + NthSmallest(values, values.size() / 2 - 1)) / 2;
}

double Quantile(std::vector<double> values, double share) {
  MOEPLAN_CHECK(!values.empty());
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  return NthSmallest(values, std::clamp<size_t>(rank, 1, values.size()) - 1);
}

double InterquartileRange(const std::vector<double>& values) { return Quantile(values, 0.75) - Quantile(values, 0.25); }

MedianInterval MedianInterval90(std::vector<double> values) {
  constexpr double kOutside = 0.1;
  const size_t count = values.size();
  double term = std::exp2(-static_cast<double>(count)), below = term;  // Of Binomial(count, 1/2): P(k), P(at most k).
  size_t k = 0;
  for (; k < count && 2 * below <= kOutside; ++k) {
    term *= static_cast<double>(count - k) / static_cast<double>(k + 1);
    below += term;
  }
  if (k == 0) return {-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  return {NthSmallest(values, k - 1), NthSmallest(values, count - k)};
}

double StudentQuantile95(double degrees_of_freedom) {
  if (degrees_of_freedom < 1.5) return 6.314;
  if (degrees_of_freedom < 2.5) return 2.920;
  // Cornish-Fisher: within 0.3 % from three degrees of freedom on.
  const double z = 1.6448536, z2 = z * z, v = degrees_of_freedom;
  return z * (1 + (z2 + 1) / (4 * v) + ((5 * z2 + 16) * z2 + 3) / (96 * v * v) +
              (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * v * v * v));
}

double NextMagnitudeBound90(std::vector<double> magnitudes) {
  const size_t n = magnitudes.size();
  if (n == 0) return 0;
  if (n < 9) return StretchForFew(n) * *std::max_element(magnitudes.begin(), magnitudes.end());
  return NthSmallest(magnitudes, (9 * (n + 1) + 9) / 10 - 1);
}

}  // namespace moeplan
