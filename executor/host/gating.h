// The gate's numerics, shared by the host kernels and the reference so that both route alike to the bit: logits, scores
// and the experts that a token chooses. Who gets a slot is decided elsewhere.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "executor/gate_scores.h"
#include "executor/layer/layer_weights.h"
#include "models/workload/workload.h"

namespace moeplan::executor {

// The logits of one token row: dot products in a fixed order, the same bits whatever else is in the batch, and then the
// bias of each expert, where the router has one.
void GateLogits(std::span<const float> token, const GateWeights& gate, std::span<float> logits);

// `scores` are those of `logits`, in another row.
GateScore Scores(const Layer& layer, std::span<const float> logits, std::span<float> scores);

struct GatedToken {
  int index = 0;  // Within the source batch.
  std::span<const float> row, logits, scores;
};

// The experts that one token chooses, its first choice first, and their weights; as many as `experts` has room for.
// Requires a gate where tokens choose.
//   TOP_K, SWITCH, BATCH_PRIORITIZED  the largest logits, or what layer.router says (ties: the lower expert). Weights
//                                     are scores, as parts of the chosen ones' sum where there are several.
//   RANDOM, HASH  k different experts drawn uniformly, with a hash of the token's index in the source batch or of the
//                 bits of its row for a key, so that a slice draws what the whole batch draws. The weight is 1/k.
// `keys` has room for a number for each expert and each group of them, and is overwritten.
void ChooseExperts(const Layer& layer, const GatedToken& token, std::span<const float> correction_bias,
                   std::span<float> keys, std::span<int32_t> experts, std::span<float> weights);

struct ChosenExperts {
  std::span<const int32_t> experts;
  std::span<const float> weights;
};
WeightRule WeightsOf(const Layer& layer);
// The gradients of all logits of a token from those of its weights; 0 for RANDOM and HASH, whose weights are fixed.
// With EXPERT_CHOICE the experts are all, and the gradient of a weight that no expert took is 0.
void LogitGradients(const Layer& layer, const GatedToken& token, const ChosenExperts& chosen,
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
void AddRouterLossGradients(const Layer& layer, const RouterLossSlopes& slopes, const GateScore& score,
                            const GatedToken& token, std::span<float> logit_gradients);

}  // namespace moeplan::executor
