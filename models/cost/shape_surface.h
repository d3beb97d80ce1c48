// A ShapeSurface predicts what a kernel takes at a shape that nobody measured, from the shapes that somebody did.
//
// A point is a kernel of one shape at one size: a knot of an entry's curve. Its rate is flops over time. Between points
// the logarithm of the rate is the mean over the nearest four, weighted by the inverse square of their distances; a
// distance is the sum of the differences of log2 of rows, features and local experts (of linear layers), or of
// sequences times heads, tokens of a sequence and dimensions of a head (of attention). A shape that was measured takes
// what was measured; where that is a line over sizes, at any size. No other call takes less than the shortest call of
// all these kernels: launch-bound.
//
// Sustained rate. A card whose products run one after the other reaches its power limit and lowers its clock; a table
// of kernels, each timed alone for a moment, has short products at the clock of a cool card. Products that take long
// are timed at the clock that a training step runs at, so where there are enough of them, nothing is priced faster than
// their median rate (docs/decisions/0028).
//
// Pure once built; the profile may go.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "models/cost/profile.h"

namespace moeplan {

// The flops that attention counts (KernelShape) over those that it computes: the masked half is left out.
inline constexpr double kCountedPerComputed = 2;

struct ShapedTime {
  double time_s = 0;
  KernelKey nearest;      // The measured shape that counts most.
  bool measured = false;  // It is the shape that was asked for.
  bool is_far = false;    // More than a factor of four lies between, over all axes.
  // Between points: 90 % of the measured ones, each left out in turn, lie within time × [1 / ratio, ratio] of what the
  // others say. 1 where the shape was measured.
  double own_error_ratio = 1;
};

// How shapes are priced from others.
struct SurfaceRules {
  int neighbours = 4;   // The nearest points that count; at least 1.
  double exponent = 2;  // A point counts by its distance to the power of minus this.
  // From which on a product is long enough for a clock to settle: fifty calls, which is what is usual, take 75 ms.
  double long_product_s = 1.5e-3;
};

class ShapeSurface {
 public:
  // From the entries of that element size (or of any) that ran alone.
  ShapeSurface(const Profile& profile, int bytes_per_element, const SurfaceRules& rules = {});

  // A kernel with a shape (IsLinear or IsAttention) on `flops`, as KernelShape counts them. Absent: the profile has no
  // point of that kernel. Requires a validated key and flops above 0.
  std::optional<ShapedTime> Time(Kernel kernel, const KernelShape& shape, double flops) const;

  bool Has(Kernel kernel) const { return points_.contains(kernel); }
  // What long products hold, in flop/s; 0: too few were measured.
  double sustained_flops_per_s() const { return sustained_flops_per_s_; }
  // How far all times may be off together, because another card, day or neighbour moves the clock: 90 % of long
  // products lie within [1 / ratio, ratio] of the sustained rate. 1: too few were measured.
  double common_error_ratio() const { return common_error_ratio_; }

 private:
  static constexpr int kAxes = 4;
  using Place = std::array<double, kAxes>;  // log2 of what distances are counted in.
  struct Point {
    KernelKey key;
    double flops = 0;
    double log_rate = 0;
    Place place = {};
  };

  static Place PlaceOf(Kernel kernel, const KernelShape& shape, double flops);
  // Finds it, and lets no point be faster.
  void SustainRates();
  void FindErrors();
  // No kernel is faster, in flops as it counts them; infinite where too few long products were measured.
  double MostRate(Kernel kernel) const;
  // At `place`, from all points but `left_out`.
  struct Rate {
    double log_rate = 0;
    const Point* nearest = nullptr;  // Null: there was no other point.
    double distance = 0;             // To the nearest.
  };
  Rate RateAt(const std::vector<Point>& points, const Place& place, const Point* left_out) const;

  SurfaceRules rules_;
  std::map<Kernel, std::vector<Point>> points_;
  struct Line {
    KernelKey key;
    AlphaBeta line;
  };
  std::map<std::pair<Kernel, KernelShape>, Line> lines_;  // Shapes whose time is known at any size.
  double least_s_ = 0;
  std::map<Kernel, double> own_error_ratio_;
  double sustained_flops_per_s_ = 0;
  double common_error_ratio_ = 1;
};

}  // namespace moeplan
