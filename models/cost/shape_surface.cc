#include "models/cost/shape_surface.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

namespace moeplan {
namespace {

constexpr size_t kFewestLongProducts = 8;
// Leaving out every one of some thousand points would take longer than all else in a question.
constexpr size_t kMostLeftOut = 64;
constexpr double kMedian = 0.5, kErrorQuantile = 0.9;

// Flops and seconds of what an entry was measured at.
std::vector<TimePoint> KnotsOf(const CostModel& model) {
  std::vector<TimePoint> knots;
  const auto add = [&](double size) { knots.push_back({size, TimeS(model.curve, size, /*bus_factor=*/1)}); };
  std::visit(
      [&](const auto& form) {
        if constexpr (requires { form.points; }) {
          for (const auto& point : form.points) add(point.size);
        } else if (model.size_low > 0 && std::isfinite(model.size_high)) {
          add(model.size_low);
          if (model.size_high > model.size_low) add(model.size_high);
        } else if constexpr (std::is_same_v<std::decay_t<decltype(form)>, AlphaBeta>) {
          // A line that comes from a file has no sizes beside it. These are those at which work takes as long as a
          // launch, and multiples of them.
          if (!(form.alpha_s > 0 && form.beta_s_per_unit > 0)) return;
          for (const double times : {1.0, 4.0, 16.0, 64.0}) add(times * form.alpha_s / form.beta_s_per_unit);
        }
      },
      model.curve);
  return knots;
}

double Distance(const auto& a, const auto& b) {
  double distance = 0;
  for (size_t axis = 0; axis < a.size(); ++axis) distance += std::abs(a[axis] - b[axis]);
  return distance;
}

// Of those measured, the one that this share is not above. Reorders. Requires one value.
double Quantile(std::vector<double>& values, double share) {
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, place);
  return *place;
}

}  // namespace

ShapeSurface::ShapeSurface(const Profile& profile, int bytes_per_element, const SurfaceRules& rules) : rules_(rules) {
  for (const KernelModel& entry : profile.kernels) {
    const KernelKey& key = entry.key;
    if (!IsLinear(key.kernel) && !IsAttention(key.kernel)) continue;
    if (key.contention != Contention::kNone || key.bytes_per_element.value_or(bytes_per_element) != bytes_per_element) {
      continue;
    }
    for (const auto& [flops, time_s] : KnotsOf(entry.model)) {
      points_[key.kernel].push_back({.key = key,
                                     .flops = flops,
                                     .log_rate = std::log(flops / time_s),
                                     .place = PlaceOf(key.kernel, key.shape, flops)});
      least_s_ = least_s_ == 0 ? time_s : std::min(least_s_, time_s);
    }
    const auto* line = std::get_if<AlphaBeta>(&entry.model.curve);
    if (line != nullptr && points_.contains(key.kernel)) lines_[{key.kernel, key.shape}] = {key, *line};
  }
  SustainRates();
  FindErrors();
}

ShapeSurface::Place ShapeSurface::PlaceOf(Kernel kernel, const KernelShape& shape, double flops) {
  if (IsLinear(kernel)) {
    const double per_row = 2.0 * shape.in_features * shape.out_features * shape.experts;
    return {std::log2(flops / per_row), std::log2(shape.in_features), std::log2(shape.out_features),
            std::log2(shape.experts)};
  }
  const double dims = shape.query_key_dim + shape.value_dim, batch = flops / AttentionFlops(shape);
  // A row of scores is as long as what a token sees.
  const double seen = shape.window > 0 ? shape.window : shape.sequence;
  // Whether heads share keys matters little; it keeps shapes apart that differ in nothing else.
  constexpr double kSharing = 0.1;
  return {std::log2(batch * shape.heads * shape.sequence / seen), std::log2(seen), std::log2(dims),
          kSharing * std::log2(1.0 * shape.heads / shape.kv_heads)};
}

void ShapeSurface::SustainRates() {
  std::vector<double> rates;
  for (const auto& [kernel, points] : points_) {
    if (!IsLinear(kernel)) continue;
    for (const Point& point : points) {
      const double rate = std::exp(point.log_rate);
      if (point.key.shape.experts == 1 && point.flops / rate >= rules_.long_product_s) rates.push_back(rate);
    }
  }
  if (rates.size() < kFewestLongProducts) return;
  sustained_flops_per_s_ = Quantile(rates, kMedian);
  for (double& rate : rates) rate = std::abs(std::log(rate / sustained_flops_per_s_));
  common_error_ratio_ = std::exp(Quantile(rates, kErrorQuantile));
  for (auto& [kernel, points] : points_) {
    const double most = std::log(MostRate(kernel));
    for (Point& point : points) point.log_rate = std::min(point.log_rate, most);
  }
}

double ShapeSurface::MostRate(Kernel kernel) const {
  if (sustained_flops_per_s_ <= 0) return std::numeric_limits<double>::infinity();
  return sustained_flops_per_s_ * (IsAttention(kernel) ? kCountedPerComputed : 1);
}

void ShapeSurface::FindErrors() {
  for (const auto& [kernel, points] : points_) {
    std::vector<double> errors;
    const size_t step = std::max<size_t>(1, points.size() / kMostLeftOut);
    for (size_t i = 0; i < points.size(); i += step) {
      const Rate predicted = RateAt(points, points[i].place, /*left_out=*/&points[i]);
      if (predicted.nearest != nullptr) errors.push_back(std::abs(predicted.log_rate - points[i].log_rate));
    }
    if (errors.empty()) continue;
    own_error_ratio_[kernel] = std::exp(Quantile(errors, kErrorQuantile));
  }
}

ShapeSurface::Rate ShapeSurface::RateAt(const std::vector<Point>& points, const Place& place,
                                        const Point* left_out) const {
  struct Neighbour {
    double distance = std::numeric_limits<double>::infinity();
    const Point* point = nullptr;
  };
  std::vector<Neighbour> best(static_cast<size_t>(std::max(1, rules_.neighbours)));  // Nearest first.
  for (const Point& point : points) {
    if (&point == left_out) continue;
    Neighbour next = {Distance(point.place, place), &point};
    for (Neighbour& kept : best) {
      if (next.distance < kept.distance) std::swap(next, kept);
    }
  }
  if (best[0].point == nullptr) return {};
  constexpr double kSamePlace = 1e-9;
  double weights = 0, sum = 0;
  for (const Neighbour& neighbour : best) {
    if (neighbour.point == nullptr) break;
    const double distance = std::max(neighbour.distance, kSamePlace);
    const double weight = std::pow(distance, -rules_.exponent);
    weights += weight, sum += weight * neighbour.point->log_rate;
  }
  return {.log_rate = sum / weights, .nearest = best[0].point, .distance = best[0].distance};
}

std::optional<ShapedTime> ShapeSurface::Time(Kernel kernel, const KernelShape& shape, double flops) const {
  const auto found = points_.find(kernel);
  if (found == points_.end()) return std::nullopt;
  if (const auto line = lines_.find({kernel, shape}); line != lines_.end()) {
    return ShapedTime{.time_s = std::max(TimeS(line->second.line, flops, /*bus_factor=*/1), flops / MostRate(kernel)),
                      .nearest = line->second.key,
                      .measured = true};
  }
  const Rate rate = RateAt(found->second, PlaceOf(kernel, shape, flops), /*left_out=*/nullptr);
  const Point& nearest = *rate.nearest;
  constexpr double kSameSize = 1e-3, kFar = 2;
  ShapedTime time = {.nearest = nearest.key, .is_far = rate.distance > kFar};
  time.measured = nearest.key.shape == shape && std::abs(std::log2(nearest.flops / flops)) < kSameSize;
  if (const auto error = own_error_ratio_.find(kernel); !time.measured && error != own_error_ratio_.end()) {
    time.own_error_ratio = error->second;
  }
  const double log_rate = time.measured ? nearest.log_rate : rate.log_rate;
  time.time_s = std::max(flops / std::exp(log_rate), least_s_);
  return time;
}

}  // namespace moeplan
