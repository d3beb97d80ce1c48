// What has to be measured before steps of a model can be priced on a cluster: every kernel and collective that
// PriceStep looks up for the layouts that the model can take there.
#pragma once

#include <vector>

#include "models/measurement/needs.h"
#include "models/model/model_config.h"
#include "models/status.h"
#include "models/workload/workload.h"

namespace moeplan::planner {

// Most useful first, in rounds as EndsFirst says, so that they can be merged with NeedsOfLayouts: linear layers, local
// experts and attention at the shapes and sizes of all layouts over the whole cluster in BF16, with ZeRO-1, contexts
// that pass keys and values, and micro-batches of up to four samples, of kUsualSequence tokens (or the model's longest,
// if that is shorter) and of an eighth of that; the kernels that move memory; launches; and uncontended collectives of
// the groups. Sizes of a key are at least a factor of four apart, its least and its greatest among them. A model that
// no layout fits in the cluster's memory, where that is known, is taken as if any did. kUnimplemented: a model with an
// encoder; kInvalidInput: no layout divides the model. Pure.
inline constexpr int kUsualSequence = 4096;
StatusOr<std::vector<Need>> NeedsOfSteps(const ModelConfig& model, const Cluster& cluster);

}  // namespace moeplan::planner
