#include "executor/host/gating.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

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

}  // namespace

void GateLogits(std::span<const float> token, std::span<const float> gate_weight, std::span<float> logits) {
  for (size_t expert = 0; expert < logits.size(); ++expert) {
    logits[expert] = Dot(token.data(), gate_weight.data() + expert * token.size(), token.size());
  }
}

void ChooseExperts(std::span<float> logits, std::span<int32_t> experts, std::span<float> weights) {
  const float highest = *std::ranges::max_element(logits);
  float all = 0;
  for (const float logit : logits) all += std::exp(logit - highest);
  float chosen = 0;
  for (size_t choice = 0; choice < experts.size(); ++choice) {
    const auto best = std::ranges::max_element(logits);
    experts[choice] = static_cast<int32_t>(best - logits.begin());
    weights[choice] = std::exp(*best - highest) / all;
    chosen += weights[choice];
    *best = -std::numeric_limits<float>::infinity();
  }
  if (experts.size() > 1) {
    for (float& weight : weights) weight /= chosen;
  }
}

void LogitGradients(std::span<const float> logits, std::span<const int32_t> experts, std::span<const float> weights,
                    std::span<const float> weight_gradients, std::span<float> logit_gradients) {
  std::ranges::fill(logit_gradients, 0.0F);
  const float mean = std::inner_product(weights.begin(), weights.end(), weight_gradients.begin(), 0.0F);
  if (experts.size() == 1) {
    // The weight is a probability among all experts.
    const float highest = *std::ranges::max_element(logits);
    float all = 0;
    for (const float logit : logits) all += std::exp(logit - highest);
    for (size_t expert = 0; expert < logits.size(); ++expert) {
      logit_gradients[expert] = -std::exp(logits[expert] - highest) / all * mean;
    }
    logit_gradients[experts[0]] += mean;
    return;
  }
  // Renormalised weights are a softmax over the chosen logits.
  for (size_t choice = 0; choice < experts.size(); ++choice) {
    logit_gradients[experts[choice]] = weights[choice] * (weight_gradients[choice] - mean);
  }
}

}  // namespace moeplan
