#include "models/measurement/bus_factor.h"

namespace moeplan {

double BusFactorOf(const CostKey& key) {
  const auto* collective = std::get_if<CollectiveKey>(&key);
  return collective == nullptr ? 1 : BusFactor(collective->collective, collective->group.size);
}

}  // namespace moeplan
