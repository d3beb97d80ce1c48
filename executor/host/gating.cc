#include "executor/host/gating.h"

#include <algorithm>
#include <numeric>

#include "executor/gate_draws.h"
#include "models/check.h"

namespace moeplan::executor {
namespace {

float Dot(const float* a, const float* b, size_t count) {
  float lanes[kLogitLanes] = {};
  size_t i = 0;
  for (; i + kLogitLanes <= count; i += kLogitLanes) {
    for (size_t lane = 0; lane < kLogitLanes; ++lane) lanes[lane] = AddProduct(lanes[lane], a[i + lane], b[i + lane]);
  }
  return LogitOfLanes(lanes, a + i, b + i, static_cast<int>(count - i));
}

uint64_t KeyOf(GateKind gate, const GatedToken& token) {
  if (gate == GateKind::kRandom) return KeyOfToken(token.index);
  uint64_t key = kDrawSeed;
  for (const float value : token.row) key = KeyWithValue(key, value);
  return key;
}

}  // namespace

void GateLogits(std::span<const float> token, std::span<const float> gate_weight, std::span<float> logits) {
  for (size_t expert = 0; expert < logits.size(); ++expert) {
    logits[expert] = Dot(token.data(), gate_weight.data() + expert * token.size(), token.size());
  }
}

GateScore Softmax(std::span<const float> logits, std::span<float> probabilities) {
  return SoftmaxOf(logits.data(), static_cast<int>(logits.size()), probabilities.data());
}

void ChooseExperts(GateKind gate, const GatedToken& token, std::span<const float> logits, std::span<int32_t> experts,
                   std::span<float> weights) {
  switch (gate) {
    case GateKind::kTopK:
    case GateKind::kSwitch:
    case GateKind::kBatchPrioritized: {
      const int choices = static_cast<int>(experts.size());
      ChooseLargestLogits(logits.data(), static_cast<int>(logits.size()), choices, experts.data());
      return WeighChosen(token.probabilities.data(), experts.data(), choices, weights.data());
    }
    case GateKind::kRandom:
    case GateKind::kHash:
      DrawExperts(KeyOf(gate, token), static_cast<int>(logits.size()), static_cast<int>(experts.size()),
                  experts.data());
      std::ranges::fill(weights, 1.0F / static_cast<float>(weights.size()));
      return;
    case GateKind::kExpertChoice: break;
  }
  MOEPLAN_CHECK(false && "experts choose here, not tokens");
}

WeightKind WeightsOf(GateKind gate, int choices) {
  if (gate == GateKind::kRandom || gate == GateKind::kHash) return WeightKind::kFixed;
  return gate != GateKind::kExpertChoice && choices > 1 ? WeightKind::kAmongChosen : WeightKind::kAmongAll;
}

void LogitGradients(GateKind gate, std::span<const float> probabilities, const ChosenExperts& chosen,
                    std::span<const float> weight_gradients, std::span<float> logit_gradients) {
  const ChoiceGradients choices = {.experts = chosen.experts.data(),
                                   .weights = chosen.weights.data(),
                                   .gradients = weight_gradients.data(),
                                   .choices = static_cast<int>(chosen.experts.size())};
  LogitGradientsOf(WeightsOf(gate, choices.choices), probabilities.data(), static_cast<int>(probabilities.size()),
                   choices, logit_gradients.data());
}

void FindSlopes(const Layer& layer, std::span<const int32_t> pair_counts, int tokens, RouterLossSlopes& slopes) {
  slopes.probability.assign(layer.experts, 0.0F);
  slopes.log_sum_exp = static_cast<float>(2 * layer.z_loss_coefficient / tokens);
  if (pair_counts.empty()) return;
  const double all = std::accumulate(pair_counts.begin(), pair_counts.end(), 0.0);
  const double of_a_pair = layer.aux_loss_coefficient * layer.experts / (all * tokens);
  for (size_t i = 0; i < pair_counts.size(); ++i) {
    slopes.probability[i % layer.experts] += static_cast<float>(of_a_pair * pair_counts[i]);
  }
}

void AddRouterLossGradients(const RouterLossSlopes& slopes, const GateScore& score,
                            std::span<const float> probabilities, std::span<float> logit_gradients) {
  AddLossGradients(probabilities.data(), static_cast<int>(probabilities.size()), slopes.probability.data(),
                   slopes.log_sum_exp, static_cast<float>(score.log_sum_exp), logit_gradients.data());
}

}  // namespace moeplan::executor
