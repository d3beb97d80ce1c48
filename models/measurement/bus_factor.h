// BusFactor (models/cost/profile.h) of whatever a cost is looked up by. Pure.
#pragma once

#include "models/measurement/cost_key.h"

namespace moeplan {

// Of a kernel 1.
double BusFactorOf(const CostKey& key);

}  // namespace moeplan
