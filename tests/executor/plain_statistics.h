// What a router did with a source batch, computed in the plainest way.
#pragma once

#include <vector>

#include "executor/reference/reference_layer.h"
#include "executor/router_statistics.h"

namespace moeplan::testing {

// By the definitions of executor/router_statistics.h, in double, of what the reference routed.
executor::RouterStatistics PlainStatistics(const Layer& layer, const std::vector<float>& input,
                                           const executor::LayerWeights& weights,
                                           const executor::ReferenceOutput& reference);

}  // namespace moeplan::testing
