#include "models/cost/cost_model.h"

#include <algorithm>
#include <cmath>

#include "models/check.h"
#include "models/text.h"

namespace moeplan {
namespace {

// The first of the two neighbours that enclose `size`; requires first.size < size < last.size.
template <typename Points>
auto Before(const Points& points, double size) {
  return std::prev(std::upper_bound(points.begin(), points.end(), size,
                                    [](double value, const auto& point) { return value < point.size; }));
}

double EfficiencyAt(const std::vector<EfficiencyPoint>& points, double size) {
  if (size <= points.front().size) return points.front().efficiency * size / points.front().size;
  if (size >= points.back().size) return points.back().efficiency;
  const auto low = Before(points, size);
  const auto high = std::next(low);
  const double share = std::log2(size / low->size) / std::log2(high->size / low->size);
  return std::lerp(low->efficiency, high->efficiency, share);
}

double TimeOf(const AlphaBeta& line, double size, double) { return line.alpha_s + line.beta_s_per_unit * size; }

double TimeOf(const Efficiency& curve, double size, double bus_factor) {
  // Below the first point the efficiency falls in proportion to size, so the time is that of the first point.
  const double at = std::max(size, curve.points.front().size);
  return at * bus_factor / (curve.peak_per_s * EfficiencyAt(curve.points, at));
}

double TimeOf(const Interpolated& curve, double size, double) {
  const auto& points = curve.points;
  if (size <= points.front().size || points.size() == 1) return points.front().time_s;
  const auto low = size >= points.back().size ? std::prev(points.end(), 2) : Before(points, size);
  const auto high = std::next(low);
  const double slope_s = (high->time_s - low->time_s) / (high->size - low->size);
  return std::max(0.0, low->time_s + slope_s * (size - low->size));
}

double TimeOf(const LogLog& curve, double size, double) {
  const auto& points = curve.points;
  if (size <= points.front().size) return points.front().time_s;
  if (size >= points.back().size) return points.back().time_s * size / points.back().size;
  const auto low = Before(points, size);
  const auto high = std::next(low);
  const double share = std::log(size / low->size) / std::log(high->size / low->size);
  return low->time_s * std::exp(share * std::log(high->time_s / low->time_s));
}

bool PositiveNumber(double value) { return std::isfinite(value) && value > 0; }

template <typename Points, typename Value>
Status CheckPoints(const Points& points, const std::string& path, const char* value_name, Value value) {
  if (points.empty()) return InvalidInput(StrCat(path, ".points: found none, expected at least one"));
  for (size_t i = 0; i < points.size(); ++i) {
    const std::string at = StrCat(path, ".points[", i, "]");
    if (!PositiveNumber(points[i].size)) {
      return InvalidInput(StrCat(at, ": found size ", points[i].size, ", expected a finite number above 0"));
    }
    if (!PositiveNumber(value(points[i]))) {
      return InvalidInput(
          StrCat(at, ".", value_name, ": found ", value(points[i]), ", expected a finite number above 0"));
    }
    if (i > 0 && points[i].size <= points[i - 1].size) {
      return InvalidInput(StrCat(at, ": found size ", points[i].size, ", expected more than ", points[i - 1].size,
                                 " (points rise in size)"));
    }
  }
  return OkStatus();
}

Status Check(const AlphaBeta& line, const std::string& path) {
  const auto sound = [](double value) { return std::isfinite(value) && value >= 0; };
  if (!sound(line.alpha_s))
    return InvalidInput(StrCat(path, ".alphaS: found ", line.alpha_s, ", expected a finite number of at least 0"));
  if (!sound(line.beta_s_per_unit)) {
    return InvalidInput(
        StrCat(path, ".betaS…: found ", line.beta_s_per_unit, ", expected a finite number of at least 0"));
  }
  if (line.alpha_s == 0 && line.beta_s_per_unit == 0) {
    return InvalidInput(StrCat(path, ": found alpha and beta of 0, expected one of them above 0"));
  }
  return OkStatus();
}
Status Check(const Efficiency& curve, const std::string& path) {
  if (!PositiveNumber(curve.peak_per_s)) {
    return InvalidInput(StrCat(path, ".peakBytesPerS: found ", curve.peak_per_s, ", expected a finite number above 0"));
  }
  return CheckPoints(curve.points, path, "efficiency", [](const EfficiencyPoint& point) { return point.efficiency; });
}
Status Check(const Interpolated& curve, const std::string& path) {
  return CheckPoints(curve.points, path, "timeS", [](const TimePoint& point) { return point.time_s; });
}
Status Check(const LogLog& curve, const std::string& path) {
  return CheckPoints(curve.points, path, "timeS", [](const TimePoint& point) { return point.time_s; });
}

}  // namespace

std::string_view FormName(const Curve& curve) {
  constexpr std::string_view kNames[] = {"logLog", "efficiency", "interpolated", "alphaBeta"};
  return kNames[curve.index()];
}

CostModel MakeCostModel(Curve curve) {
  CostModel model;
  std::visit(
      [&](const auto& form) {
        if constexpr (requires { form.points; }) {
          MOEPLAN_CHECK(!form.points.empty());
          model.size_low = form.points.front().size;
          model.size_high = form.points.back().size;
        }
      },
      curve);
  model.curve = std::move(curve);
  return model;
}

double TimeS(const Curve& curve, double size, double bus_factor) {
  MOEPLAN_CHECK(size >= 0);
  return std::visit([&](const auto& form) { return TimeOf(form, size, bus_factor); }, curve);
}

double LeastPerUnitS(const Curve& curve, double bus_factor) {
  // Between knots, and beyond the last one, time / size is monotone in every form.
  constexpr double kHuge = 1e30;
  double least = TimeS(curve, kHuge, bus_factor) / kHuge;
  std::visit(
      [&](const auto& form) {
        if constexpr (requires { form.points; }) {
          for (const auto& point : form.points) {
            if (point.size > 0) least = std::min(least, TimeS(curve, point.size, bus_factor) / point.size);
          }
        }
      },
      curve);
  return least;
}

Status ValidateCurve(const Curve& curve, const std::string& path) {
  return std::visit([&](const auto& form) { return Check(form, StrCat(path, ".", FormName(curve))); }, curve);
}

}  // namespace moeplan
