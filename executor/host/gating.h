// The gate's numerics, shared by the host kernels and the reference so that both route alike to the bit.
#pragma once

#include <cstdint>
#include <span>

namespace moeplan {

// The scores of one token row: dot products in a fixed order, the same bits whatever else is in the batch.
void GateLogits(std::span<const float> token, std::span<const float> gate_weight, std::span<float> logits);

// The top-k experts by logit (ties: the lower expert), best first, and their weights: the softmax probability over all
// experts, renormalised to sum 1 when k > 1. `logits` is used as scratch.
void ChooseExperts(std::span<float> logits, std::span<int32_t> experts, std::span<float> weights);

// The gradients of all logits from those of the weights that ChooseExperts gave the chosen experts.
void LogitGradients(std::span<const float> logits, std::span<const int32_t> experts, std::span<const float> weights,
                    std::span<const float> weight_gradients, std::span<float> logit_gradients);

}  // namespace moeplan
