#include "planner/sweep/cost_scaling.h"

#include <algorithm>
#include <utility>

#include "models/fit/fit.h"

namespace moeplan::planner {
namespace {

void ScaleTimes(std::vector<TimePoint>& points, double factor) {
  for (TimePoint& point : points) point.time_s *= factor;
}

void ScaleCurve(LogLog& curve, double factor) { ScaleTimes(curve.points, factor); }
void ScaleCurve(Interpolated& curve, double factor) { ScaleTimes(curve.points, factor); }
void ScaleCurve(Efficiency& curve, double factor) { curve.peak_per_s /= factor; }
void ScaleCurve(AlphaBeta& line, double factor) {
  line.alpha_s *= factor;
  line.beta_s_per_unit *= factor;
}

std::vector<double> SizesOf(const Curve& curve) {
  std::vector<double> sizes;
  const auto add = [&](const auto& form) {
    if constexpr (requires { form.points; }) {
      for (const auto& point : form.points) sizes.push_back(point.size);
    }
  };
  std::visit(add, curve);
  return sizes;
}

double LatencyOf(const CostModel& model, double bus_factor) {
  if (model.summary) return model.summary->alpha_s;
  std::vector<SizedTimes> points;
  for (const double size : SizesOf(model.curve)) points.push_back({size, {TimeS(model.curve, size, bus_factor)}});
  return FitLine(points).line.alpha_s;
}

// A time whose part above the latency is divided by `speed`.
double Faster(double time_s, double latency_s, double speed) {
  const double fixed_s = std::min(latency_s, time_s);
  return fixed_s + (time_s - fixed_s) / speed;
}

void SpeedUp(AlphaBeta& line, double /*latency_s*/, double speed, double /*bus_factor*/) {
  line.beta_s_per_unit /= speed;
}
template <typename Timed>
void SpeedUp(Timed& curve, double latency_s, double speed, double /*bus_factor*/) {
  for (TimePoint& point : curve.points) point.time_s = Faster(point.time_s, latency_s, speed);
}
void SpeedUp(Efficiency& curve, double latency_s, double speed, double bus_factor) {
  const Efficiency before = curve;
  curve.peak_per_s *= speed;
  for (EfficiencyPoint& point : curve.points) {
    const double time_s = Faster(TimeS(before, point.size, bus_factor), latency_s, speed);
    point.efficiency = point.size * bus_factor / (curve.peak_per_s * time_s);
  }
}

bool SpansNodes(const GroupShape& group) { return group.ranks_per_node < group.size; }

}  // namespace

void ScaleTime(CostModel& model, double factor) {
  std::visit([&](auto& form) { ScaleCurve(form, factor); }, model.curve);
  if (model.summary) ScaleCurve(*model.summary, factor);
  if (!model.fit) return;
  for (double* time_s : {&model.fit->alpha_low_s, &model.fit->alpha_high_s, &model.fit->beta_low_s_per_unit,
                         &model.fit->beta_high_s_per_unit}) {
    *time_s *= factor;
  }
}

void ScaleRate(CostModel& model, double speed, double bus_factor) {
  if (speed == 1) return;  // To the last bit.
  const double latency_s = std::holds_alternative<AlphaBeta>(model.curve) ? 0 : LatencyOf(model, bus_factor);
  std::visit([&](auto& form) { SpeedUp(form, latency_s, speed, bus_factor); }, model.curve);
  if (model.summary) model.summary->beta_s_per_unit /= speed;
  if (!model.fit) return;
  model.fit->beta_low_s_per_unit /= speed;
  model.fit->beta_high_s_per_unit /= speed;
}

void ScaleNic(Profile& profile, double speed) {
  for (CollectiveModel& entry : profile.collectives) {
    if (!SpansNodes(entry.key.group)) continue;
    ScaleRate(entry.model, speed, BusFactor(entry.key.collective, entry.key.group.size));
  }
  profile.cluster.network_bytes_per_s *= speed;
}

}  // namespace moeplan::planner
