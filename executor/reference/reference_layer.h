// The MoE layer computed by one process in the plainest way, in double precision: what every schedule must agree with.
//
// It gates with the same float probabilities and choices as the executor (routing must not differ by rounding), decides
// by itself who gets a slot, and does everything else in double from the full weights. No buffers, no groups, no
// schedule.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/layer/layer_weights.h"
#include "models/workload/workload.h"

namespace moeplan::executor {

struct ReferenceOutput {
  std::vector<double> output;  // [B·L][M]
  // The largest element of the output if none of its terms hidden · down · gate weight cancelled: what rounding errors
  // are small against.
  double largest_magnitude = 0;
  // Of [B·L][RoutingWidth]: the expert, and whether the pair got a slot.
  std::vector<int32_t> experts;
  std::vector<bool> kept;
};

// `full` are the weights of all experts, uncut (ShardOf with a layout of ones). `capacity` slots per expert, counted
// over `slices` equal slices of the tokens each (1: the whole batch; more: what `padded` capacity means).
ReferenceOutput ComputeReference(const Layer& layer, const LayerWeights& full, const std::vector<float>& input,
                                 int capacity, int slices);

}  // namespace moeplan::executor
