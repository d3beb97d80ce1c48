// The line of the link model: what a start, a step and a byte cost on each class of link, fitted jointly to measured
// curves of collectives.
//
// A collective of `size` bytes that loads the links as LoadOf says (link_load.h) takes
//
//   start·starts + sum over classes of alpha·steps + memory·local_share·size + link(size)
//
// link(size) is the sum over both classes of beta·share·size where they take turns, their maximum where they run at
// the same time. This is the alpha-beta model of Parm §IV, with one alpha and beta for each class in place of one for
// each collective. All parameters are >= 0. Residuals are relative; every curve has the same weight whatever its number
// of points; Huber's weights first, then Tukey's bisquare. A slight pull of all parameters to 0, in shares of the
// time, divides between them what the curves cannot tell apart (a start and a step, where all groups have one size).
// A byte costs at least what it takes on the wire, where the cluster knows how fast that is: curves alone cannot always
// tell a link from a memory, and noise has some links faster than they are. Pure and deterministic.
#pragma once

#include <array>
#include <vector>

#include "models/cost/cost_model.h"
#include "models/links/link_load.h"
#include "models/workload/workload.h"

namespace moeplan {

// How a library uses the links; no profile says it.
struct LinkUse {
  GatherRoute route = GatherRoute::kDirect;
  bool take_turns = true;  // The classes, in one collective; false: at the same time.

  friend bool operator==(const LinkUse&, const LinkUse&) = default;
};

struct LinkCosts {
  double start_s = 0;
  std::array<double, kLinkClasses> alpha_s = {};          // By LinkClass: a step.
  std::array<double, kLinkClasses> beta_s_per_byte = {};  // Likewise.
  double memory_s_per_byte = 0;

  friend bool operator==(const LinkCosts&, const LinkCosts&) = default;
};

// How much one rank can send at most, one way, over each class of link.
struct Wires {
  std::array<double, kLinkClasses> bytes_per_s = {};  // By LinkClass; 0: not known.

  // The least that a byte costs; 0 where the wire is not known.
  double BetaFloor(size_t link) const { return bytes_per_s[link] > 0 ? 1 / bytes_per_s[link] : 0; }
};

// Takes the rates that the cluster knows. Those that no cluster may have (ValidatePossible, models/cost/plausible.h)
// count as not known.
Wires WiresOf(const Cluster& cluster);

struct LinkLine {
  LinkUse use;
  LinkCosts costs;

  friend bool operator==(const LinkLine&, const LinkLine&) = default;
};

// Seconds; 0 for no load, above 0 for any other.
double TimeS(const LinkLine& line, const LinkLoad& load, double bytes);

struct LoadedCurve {
  std::array<LinkLoad, std::size(kGatherRoutes)> loads;  // By GatherRoute.
  std::vector<TimePoint> points;                         // Sizes and times above 0.

  const LinkLoad& load(const LinkUse& use) const { return loads[static_cast<size_t>(use.route)]; }
};

// Requires a curve, each with a point. No beta of the line is below the floor of its wire, a class that no curve loads
// included.
LinkLine FitLinkLine(const std::vector<const LoadedCurve*>& curves, const LinkUse& use, const Wires& wires = {});

// The line under the use of the links that misses least: mean over the curves of their mean |log residual|. All uses
// have as many parameters, so no penalty is due. The first of kGatherRoutes, and taking turns, stay unless another
// misses by less than kClearlyLess times as much.
inline constexpr double kClearlyLess = 0.95;
LinkLine FitLinkLine(const std::vector<const LoadedCurve*>& curves, const Wires& wires = {});

}  // namespace moeplan
