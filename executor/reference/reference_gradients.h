// The gradients of an MoE layer, computed by one process in the plainest way, in double precision: what the backward
// pass of every schedule must agree with.
//
// For loss = Σ output_gradient · output, plus the router's losses times the layer's coefficients (the shares f of the
// load-balance loss are constants), over the tokens of one source batch. Which experts a token has, and which
// pairs got a slot, is taken from the forward reference; weights and everything else are computed anew in double.
#pragma once

#include <vector>

#include "executor/reference/reference_layer.h"

namespace moeplan::executor {

// A gradient, and how large its largest element would be if none of its terms cancelled: what rounding errors are small
// against.
struct ReferenceGradient {
  std::vector<double> values;
  double largest_magnitude = 0;

  // Adds up the gradients of several source batches.
  ReferenceGradient& operator+=(const ReferenceGradient& other);
};

// In the shapes of ExpertWeights, of all experts, uncut.
struct ReferenceExpertGradients {
  ReferenceGradient up, gate_up, down, up_bias, gate_up_bias, down_bias;

  ReferenceExpertGradients& operator+=(const ReferenceExpertGradients& other);
};

struct ReferenceGradients {
  ReferenceGradient input;  // [B·L][M]
  ReferenceGradient gate;   // [E][M], and behind it [E] of the bias, where the router has one.
  ReferenceExpertGradients experts, shared;
};

ReferenceGradients ComputeReferenceGradients(const Layer& layer, const LayerWeights& full,
                                             const std::vector<float>& input, const std::vector<float>& output_gradient,
                                             const ReferenceOutput& forward);

}  // namespace moeplan::executor
