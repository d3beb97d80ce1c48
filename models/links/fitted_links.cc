#include "models/links/fitted_links.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "models/fit/statistics.h"
#include "models/links/link_model.h"

namespace moeplan {
namespace {

std::vector<const LoadedCurve*> CurvesOf(const std::vector<MeasuredCollective>& measured) {
  std::vector<const LoadedCurve*> curves;
  for (const MeasuredCollective& one : measured) curves.push_back(&one.loaded);
  return curves;
}

double MedianMiss(const std::vector<const LoadedCurve*>& curves, const LinkLine& line) {
  std::vector<double> misses;
  for (const LoadedCurve* curve : curves) {
    for (const TimePoint& point : curve->points) {
      misses.push_back(std::abs(TimeS(line, curve->load(line.use), point.size) / point.time_s - 1));
    }
  }
  return Median(std::move(misses));
}

// 1 / (1 / rate) may round to more than the rate.
double RateOf(double beta_s_per_byte, double wire_bytes_per_s) {
  const double rate = 1 / beta_s_per_byte;
  return wire_bytes_per_s > 0 ? std::min(rate, wire_bytes_per_s) : rate;
}

FittedLink LinkOf(LinkClass link, const std::vector<MeasuredCollective>& measured, const LinkLine& line,
                  const Wires& wires) {
  const auto at = static_cast<size_t>(link);
  FittedLink fitted = {.link = link, .alpha_s = line.costs.start_s + line.costs.alpha_s[at]};
  if (const double beta = line.costs.beta_s_per_byte[at]; beta > 0) {
    fitted.bytes_per_s = RateOf(beta, wires.bytes_per_s[at]);
  }
  for (const MeasuredCollective& one : measured) {
    if (one.loaded.load(line.use).steps[at] > 0) fitted.crossed_by.push_back(one.key);
  }
  std::ranges::stable_sort(fitted.crossed_by, {}, [](const CollectiveKey& key) {
    return std::tuple(key.group.size, key.group.ranks_per_node);
  });
  return fitted;
}

}  // namespace

std::optional<LinkLine> LineOf(const Profile& profile) {
  const std::vector<MeasuredCollective> measured = CollectivesThatTeach(profile);
  if (measured.empty()) return std::nullopt;
  return FitLinkLine(CurvesOf(measured), WiresOf(profile.cluster));
}

FittedLinks FitLinks(const Profile& profile) {
  const std::vector<MeasuredCollective> measured = CollectivesThatTeach(profile);
  FittedLinks fitted;
  if (measured.empty()) return fitted;
  const std::vector<const LoadedCurve*> curves = CurvesOf(measured);
  const Wires wires = WiresOf(profile.cluster);
  const LinkLine line = FitLinkLine(curves, wires);
  for (const LinkClass link : {LinkClass::kIntraNode, LinkClass::kInterNode}) {
    FittedLink one = LinkOf(link, measured, line, wires);
    if (!one.crossed_by.empty()) fitted.links.push_back(std::move(one));
  }
  fitted.relative_error_p50 = MedianMiss(curves, line);
  return fitted;
}

}  // namespace moeplan
