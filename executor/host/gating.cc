#include "executor/host/gating.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
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

// Experts are chosen by `keys`, which become their logits or their corrected scores, and NaN outside of the groups that
// a token may choose from.
void MakeKeys(const Router& router, const GatedToken& token, std::span<const float> correction_bias,
              std::span<float> keys) {
  std::ranges::copy(token.logits, keys.begin());
  if (router.correction_bias) std::ranges::transform(token.scores, correction_bias, keys.begin(), std::plus<>());
  if (!LimitsGroups(router)) return;
  const int groups = router.expert_groups, of_group = static_cast<int>(token.logits.size()) / groups;
  const std::span<float> group_keys = keys.subspan(token.logits.size(), groups);
  for (int group = 0; group < groups; ++group) {
    group_keys[group] = KeyOfGroup(keys.data() + group * of_group, of_group, router.correction_bias);
  }
  constexpr float kPassedOver = std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < router.groups_per_token; ++i) {
    int32_t best = 0;
    ChooseLargest(group_keys.data(), groups, /*choices=*/1, &best);
    group_keys[best] = kPassedOver;
  }
  for (int group = 0; group < groups; ++group) {
    if (!std::isnan(group_keys[group])) std::ranges::fill(keys.subspan(group * of_group, of_group), kPassedOver);
  }
}

}  // namespace

void GateLogits(std::span<const float> token, const GateWeights& gate, std::span<float> logits) {
  for (size_t expert = 0; expert < logits.size(); ++expert) {
    logits[expert] = Dot(token.data(), gate.weight.data() + expert * token.size(), token.size());
    if (!gate.bias.empty()) logits[expert] += gate.bias[expert];
  }
}

GateScore Scores(const Layer& layer, std::span<const float> logits, std::span<float> scores) {
  const int experts = static_cast<int>(logits.size());
  const bool sigmoid = layer.router.score_function == ScoreFunction::kSigmoid;
  return sigmoid ? SigmoidsOf(logits.data(), experts, scores.data()) : SoftmaxOf(logits.data(), experts, scores.data());
}

void ChooseExperts(const Layer& layer, const GatedToken& token, std::span<const float> correction_bias,
                   std::span<float> keys, std::span<int32_t> experts, std::span<float> weights) {
  const int all = static_cast<int>(token.logits.size()), choices = static_cast<int>(experts.size());
  switch (layer.gate) {
    case GateKind::kTopK:
    case GateKind::kSwitch:
    case GateKind::kBatchPrioritized:
      MakeKeys(layer.router, token, correction_bias, keys);
      ChooseLargest(keys.data(), all, choices, experts.data());
      return WeighChosen(token.scores.data(), experts.data(), choices, layer.router.raw_weights,
                         static_cast<float>(layer.router.weight_scale), weights.data());
    case GateKind::kRandom:
    case GateKind::kHash:
      DrawExperts(KeyOf(layer.gate, token), all, choices, experts.data());
      std::ranges::fill(weights, 1.0F / static_cast<float>(weights.size()));
      return;
    case GateKind::kExpertChoice: break;
  }
  MOEPLAN_CHECK(false && "experts choose here, not tokens");
}

WeightRule WeightsOf(const Layer& layer) {
  const bool draws = layer.gate == GateKind::kRandom || layer.gate == GateKind::kHash;
  const bool several = layer.gate != GateKind::kExpertChoice && layer.top_k > 1 && !layer.router.raw_weights;
  return {.kind = draws     ? WeightRule::kFixed
                  : several ? WeightRule::kAmongChosen
                            : WeightRule::kScores,
          .function = layer.router.score_function,
          .scale = static_cast<float>(layer.router.weight_scale)};
}

void LogitGradients(const Layer& layer, const GatedToken& token, const ChosenExperts& chosen,
                    std::span<const float> weight_gradients, std::span<float> logit_gradients) {
  LogitGradientsOf(WeightsOf(layer), token.logits.data(), token.scores.data(), static_cast<int>(token.logits.size()),
                   {.experts = chosen.experts.data(),
                    .weights = chosen.weights.data(),
                    .gradients = weight_gradients.data(),
                    .choices = static_cast<int>(chosen.experts.size())},
                   logit_gradients.data());
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

void AddRouterLossGradients(const Layer& layer, const RouterLossSlopes& slopes, const GateScore& score,
                            const GatedToken& token, std::span<float> logit_gradients) {
  AddLossGradients(layer.router.score_function, token.logits.data(), token.scores.data(),
                   static_cast<int>(token.logits.size()), slopes.probability.data(), slopes.log_sum_exp, score,
                   logit_gradients.data());
}

}  // namespace moeplan::executor
