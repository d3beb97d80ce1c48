#include "models/routing/part_rows.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "models/check.h"

namespace moeplan {
namespace {

double NormalDensity(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double NormalBelow(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

// The expected lesser of a limit and a normal load.
double ExpectedKept(double mean, double deviation, double limit) {
  if (deviation <= 0) return std::min(mean, limit);
  const double z = (mean - limit) / deviation;
  return mean - ((mean - limit) * NormalBelow(z) + deviation * NormalDensity(z));
}

}  // namespace

double ExpectedLargestNormal(double values) {
  MOEPLAN_CHECK(values >= 1);
  if (values == 1) return 0;
  // E max = ∫ over x > 0 of (1 − Φ(x)^n) − (Φ(−x)^n); beyond 10 both are nothing.
  constexpr double kStep = 1.0 / 64, kEnd = 10;
  double sum = 0;
  for (double x = kStep / 2; x < kEnd; x += kStep) {
    sum += -std::expm1(values * std::log1p(-NormalBelow(-x))) - std::pow(NormalBelow(-x), values);
  }
  return sum * kStep;
}

PartRows::PartRows(const Workload& workload) {
  const Layer& layer = workload.layer;
  const Layout& layout = workload.layout;
  MOEPLAN_CHECK(layer.top_k >= 1 && layer.top_k <= layer.experts && layout.expert_parallel >= 1);
  const double experts = layer.experts, top_k = layer.top_k, ranks = layout.expert_parallel;
  const double own_pairs = top_k * SizesOf(layer, layout).tokens / layout.tensor_parallel;
  pairs_ = own_pairs * layout.expert_sharding_parallel;
  if (experts > 1)
    spread_ = ExpectedLargestNormal(layout.expert_parallel) * std::sqrt((experts - top_k) / (experts - 1));
  most_ratio_ = ranks * std::min(top_k, std::max(1.0, experts / ranks)) / top_k;
  if (IsDropless(layer)) {
    filled_share_ = 1 / BusiestRatio(1);
    return;
  }
  const double mean = own_pairs / experts, factor = CapacityFactorOf(layer, layout);
  const double kept = ExpectedKept(mean, std::sqrt(mean * (1 - top_k / experts)), factor * mean);
  filled_share_ = std::clamp(kept / (factor * mean), 0.0, 1.0);
}

double PartRows::BusiestRatio(int parts) const {
  return std::min(most_ratio_, 1 + spread_ * std::sqrt(parts / pairs_));
}

double PartRows::ShareOfWhole(int parts) const {
  return parts == 1 ? 1 : std::min(1.0, filled_share_ * BusiestRatio(parts) / parts);
}

}  // namespace moeplan
