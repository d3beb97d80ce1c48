// What the link model is held against: the nearest measured group, its times scaled by the bus factors.
#pragma once

#include <cmath>
#include <tuple>

#include "models/cost/profile.h"
#include "models/links/link_load.h"

namespace moeplan {

// Of the curves that reach as far (one node or several): the same collective first, then the least difference of log2
// ranks per node, then of log2 ranks. -1 where there is none.
inline double NearestGroupTimeS(const Profile& profile, const CollectiveKey& key, double bytes) {
  const auto distance = [&](const CollectiveKey& measured) {
    const auto doublings = [](double a, double b) { return std::abs(std::log2(a / b)); };
    return std::tuple(measured.collective != key.collective,
                      doublings(measured.group.ranks_per_node, key.group.ranks_per_node),
                      doublings(measured.group.size, key.group.size));
  };
  const CollectiveModel* nearest = nullptr;
  for (const CollectiveModel& entry : profile.collectives) {
    if (Spans(entry.key.group) != Spans(key.group)) continue;
    if (nearest == nullptr || distance(entry.key) < distance(nearest->key)) nearest = &entry;
  }
  if (nearest == nullptr) return -1;
  const double bus_factor = BusFactor(nearest->key.collective, nearest->key.group.size);
  return TimeS(nearest->model.curve, bytes, bus_factor) * BusFactor(key.collective, key.group.size) / bus_factor;
}

}  // namespace moeplan
