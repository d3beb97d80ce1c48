// How long something takes as a function of its size: the four cost models of design.md §3.
//
// Sizes are bytes (the `size` column of nccl-tests) or flops; times are seconds. A model is a value; evaluating it is
// pure. A time is finite and not negative; it need not rise with size, since measured curves dip where protocols
// switch. Sources: alphaBeta, Parm §IV; efficiency, MoNTA's r(volume); interpolated, Lancet §5; logLog, design.md §3.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/status.h"

namespace moeplan {

struct TimePoint {
  double size = 0;
  double time_s = 0;

  friend bool operator==(const TimePoint&, const TimePoint&) = default;
};

struct EfficiencyPoint {
  double size = 0;
  double efficiency = 0;  // Above 0; 1 is the peak.

  friend bool operator==(const EfficiencyPoint&, const EfficiencyPoint&) = default;
};

// alpha + beta·size.
struct AlphaBeta {
  double alpha_s = 0;
  double beta_s_per_unit = 0;

  friend bool operator==(const AlphaBeta&, const AlphaBeta&) = default;
};

// size·φ / (peak·r(size)); r linear in log2(size) between points, in proportion to size below the first, constant
// above the last.
struct Efficiency {
  double peak_per_s = 0;
  std::vector<EfficiencyPoint> points;

  friend bool operator==(const Efficiency&, const Efficiency&) = default;
};

// Linear in size between points; constant below the first; the last slope above.
struct Interpolated {
  std::vector<TimePoint> points;

  friend bool operator==(const Interpolated&, const Interpolated&) = default;
};

// log time linear in log size between points; constant below the first; constant bandwidth above the last.
struct LogLog {
  std::vector<TimePoint> points;

  friend bool operator==(const LogLog&, const LogLog&) = default;
};

using Curve = std::variant<LogLog, Efficiency, Interpolated, AlphaBeta>;

// The JSON key of a form: "logLog", "efficiency", "interpolated", "alphaBeta".
std::string_view FormName(const Curve& curve);

// What is known of how well a curve was fitted (models/fit). Ratios multiply a predicted time.
struct FitQuality {
  std::string chosen;             // FormName of the curve that plans.
  double relative_error_p50 = 0;  // Cross-validated.
  double relative_error_p95 = 0;
  double alpha_low_s = 0, alpha_high_s = 0;  // 90 % intervals of the alphaBeta summary.
  double beta_low_s_per_unit = 0, beta_high_s_per_unit = 0;
  double interval_low_ratio = 1;  // 90 % of new measurements lie in time × [low, high].
  double interval_high_ratio = 1;
  std::vector<double> breakpoints;  // Sizes where the behaviour changes.
  int outliers = 0;                 // Rejected measurements.
  int points = 0;                   // Sizes measured.

  friend bool operator==(const FitQuality&, const FitQuality&) = default;
};

struct CostModel {
  Curve curve;                       // The one that plans.
  std::optional<AlphaBeta> summary;  // For reading; absent when the curve is an AlphaBeta itself.
  std::optional<FitQuality> fit;     // Absent for models written by hand.
  // The measured range. Unknown (0 and infinity) for a bare alphaBeta.
  double size_low = 0;
  double size_high = std::numeric_limits<double>::infinity();

  friend bool operator==(const CostModel&, const CostModel&) = default;
};

// The model of a curve, its range taken from the curve's own points.
CostModel MakeCostModel(Curve curve);

// Seconds for `size` bytes or flops; 0 for size 0 of a group of one is the caller's business. `bus_factor` is φ(n) and
// matters to `efficiency` alone. Requires a validated curve and size >= 0.
double TimeS(const Curve& curve, double size, double bus_factor);

// The least seconds per unit at any size: work of `size` units takes no less than size times this, however it is cut.
// Requires a validated curve.
double LeastPerUnitS(const Curve& curve, double bus_factor);

// Points strictly increasing in size, everything finite, times and efficiencies above 0, alpha and beta >= 0 and not
// both 0. `path` names the model in the message.
Status ValidateCurve(const Curve& curve, const std::string& path);

}  // namespace moeplan
