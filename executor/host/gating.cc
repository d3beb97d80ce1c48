#include "executor/host/gating.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "executor/layer/mix.h"
#include "models/check.h"

namespace moeplan {
namespace {

// Eight running sums: wide enough to vectorise, and always added up in the same order.
float Dot(const float* a, const float* b, size_t count) {
  constexpr size_t kLanes = 8;
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  float sum = std::accumulate(std::begin(lanes), std::end(lanes), 0.0F);
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

void ChooseLargest(std::span<const float> probabilities, std::span<float> logits, std::span<int32_t> experts,
                   std::span<float> weights) {
  float chosen = 0;
  for (size_t choice = 0; choice < experts.size(); ++choice) {
    const auto best = std::ranges::max_element(logits);
    experts[choice] = static_cast<int32_t>(best - logits.begin());
    weights[choice] = probabilities[experts[choice]];
    chosen += weights[choice];
    *best = -std::numeric_limits<float>::infinity();
  }
  if (experts.size() > 1) {
    for (float& weight : weights) weight /= chosen;
  }
}

constexpr uint64_t kDrawSeed = 0x6d6f65706c616e;

uint64_t HashOf(std::span<const float> row) {
  uint64_t hash = kDrawSeed;
  for (const float value : row) hash = Mix(hash ^ std::bit_cast<uint32_t>(value));
  return hash;
}

// Different experts of `count`, every choice a draw among those that are left.
void DrawExperts(uint64_t key, size_t count, std::span<int32_t> experts) {
  for (size_t choice = 0; choice < experts.size(); ++choice) {
    const auto drawn = experts.first(choice);
    // A share of the range rather than a remainder, which would favour low numbers.
    uint64_t skip = (Mix(key + choice) >> 32) * (count - choice) >> 32;
    int32_t expert = 0;
    while (std::ranges::find(drawn, expert) != drawn.end() || skip-- > 0) ++expert;
    experts[choice] = expert;
  }
}

}  // namespace

void GateLogits(std::span<const float> token, std::span<const float> gate_weight, std::span<float> logits) {
  for (size_t expert = 0; expert < logits.size(); ++expert) {
    logits[expert] = Dot(token.data(), gate_weight.data() + expert * token.size(), token.size());
  }
}

GateScore Softmax(std::span<const float> logits, std::span<float> probabilities) {
  const float highest = *std::ranges::max_element(logits);
  float all = 0;
  for (size_t expert = 0; expert < logits.size(); ++expert) {
    probabilities[expert] = std::exp(logits[expert] - highest);
    all += probabilities[expert];
  }
  double mean = 0;  // Of logit - highest.
  for (size_t expert = 0; expert < logits.size(); ++expert) {
    probabilities[expert] /= all;
    mean += static_cast<double>(probabilities[expert]) * (logits[expert] - highest);
  }
  const double log_all = std::log(static_cast<double>(all));
  return {.largest_probability = 1 / all, .log_sum_exp = highest + log_all, .entropy = log_all - mean};
}

void ChooseExperts(GateKind gate, const GatedToken& token, std::span<float> logits, std::span<int32_t> experts,
                   std::span<float> weights) {
  switch (gate) {
    case GateKind::kTopK:
    case GateKind::kSwitch:
    case GateKind::kBatchPrioritized: return ChooseLargest(token.probabilities, logits, experts, weights);
    case GateKind::kRandom:
    case GateKind::kHash:
      DrawExperts(gate == GateKind::kHash ? HashOf(token.row) : Mix(kDrawSeed + token.index), logits.size(), experts);
      std::ranges::fill(weights, 1.0F / static_cast<float>(weights.size()));
      return;
    case GateKind::kExpertChoice: break;
  }
  MOEPLAN_CHECK(false && "experts choose here, not tokens");
}

void LogitGradients(GateKind gate, std::span<const float> probabilities, const ChosenExperts& chosen,
                    std::span<const float> weight_gradients, std::span<float> logit_gradients) {
  std::ranges::fill(logit_gradients, 0.0F);
  if (gate == GateKind::kRandom || gate == GateKind::kHash) return;
  const auto [experts, weights] = chosen;
  const float mean = std::inner_product(weights.begin(), weights.end(), weight_gradients.begin(), 0.0F);
  if (gate != GateKind::kExpertChoice && experts.size() > 1) {
    // Renormalised weights are a softmax over the chosen logits.
    for (size_t choice = 0; choice < experts.size(); ++choice) {
      logit_gradients[experts[choice]] = weights[choice] * (weight_gradients[choice] - mean);
    }
    return;
  }
  // Weights are probabilities among all experts.
  for (size_t expert = 0; expert < probabilities.size(); ++expert)
    logit_gradients[expert] = -probabilities[expert] * mean;
  for (size_t choice = 0; choice < experts.size(); ++choice) {
    logit_gradients[experts[choice]] += weights[choice] * weight_gradients[choice];
  }
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
  const float mean = std::inner_product(probabilities.begin(), probabilities.end(), slopes.probability.begin(), 0.0F);
  const float of_log_sum_exp = slopes.log_sum_exp * static_cast<float>(score.log_sum_exp);
  for (size_t expert = 0; expert < probabilities.size(); ++expert) {
    logit_gradients[expert] += probabilities[expert] * (slopes.probability[expert] - mean + of_log_sum_exp);
  }
}

}  // namespace moeplan
