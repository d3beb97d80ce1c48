// The gate's numerics, shared by the host kernels and the reference so that both route alike to the bit: logits,
// probabilities and the experts that a token chooses. Who gets a slot is decided elsewhere.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "executor/gate_scores.h"
#include "models/workload/workload.h"

namespace moeplan::executor {

// The scores of one token row: dot products in a fixed order, the same bits whatever else is in the batch.
void GateLogits(std::span<const float> token, std::span<const float> gate_weight, std::span<float> logits);

// `probabilities` are the softmax of `logits` over all experts.
GateScore Softmax(std::span<const float> logits, std::span<float> probabilities);

struct GatedToken {
  int index = 0;  // Within the source batch.
  std::span<const float> row;
  std::span<const float> probabilities;
};

// The experts that one token chooses, its first choice first, and their weights; as many as `experts` has room for.
// Requires a gate where tokens choose.
//   TOP_K, SWITCH, BATCH_PRIORITIZED  the largest logits (ties: the lower expert). The weight is the probability,
//                                     renormalised to sum 1 when k > 1.
//   RANDOM, HASH  k different experts drawn uniformly, with a hash of the token's index in the source batch or of the
//                 bits of its row for a key, so that a slice draws what the whole batch draws. The weight is 1/k.
void ChooseExperts(GateKind gate, const GatedToken& token, std::span<const float> logits, std::span<int32_t> experts,
                   std::span<float> weights);

struct ChosenExperts {
  std::span<const int32_t> experts;
  std::span<const float> weights;
};
// What the weights of a gate are that chooses so many experts of a token.
WeightKind WeightsOf(GateKind gate, int choices);
// The gradients of all logits of a token from those of its weights; 0 for RANDOM and HASH, whose weights are fixed.
// `probabilities` are the softmax of its logits. With EXPERT_CHOICE the experts are all, and the gradient of a weight
// that no expert took is 0.
void LogitGradients(GateKind gate, std::span<const float> probabilities, const ChosenExperts& chosen,
                    std::span<const float> weight_gradients, std::span<float> logit_gradients);

// How the losses of a source batch's router, times the layer's coefficients, rise with what one token adds to them.
struct RouterLossSlopes {
  std::vector<float> probability;  // By expert: of the load-balance loss. Its shares f of the pairs are constants.
  float log_sum_exp = 0;           // Of the z-loss, for each unit of the token's logsumexp.
};
// `pair_counts` are [slices][E] of the batch's `tokens`, or nothing where the load-balance loss does not count.
// Overwrites `slopes`, which keeps its room.
void FindSlopes(const Layer& layer, std::span<const int32_t> pair_counts, int tokens, RouterLossSlopes& slopes);
// Adds to the gradients of a token's logits those of the router's losses, whatever the gate.
void AddRouterLossGradients(const RouterLossSlopes& slopes, const GateScore& score,
                            std::span<const float> probabilities, std::span<float> logit_gradients);

}  // namespace moeplan::executor
