#include "tests/executor/plain_statistics.h"

#include <cmath>

namespace moeplan::testing {

executor::RouterStatistics PlainStatistics(const Layer& layer, const std::vector<float>& input,
                                           const executor::LayerWeights& weights,
                                           const executor::ReferenceOutput& reference) {
  executor::RouterStatistics plain{.tokens = static_cast<int64_t>(input.size()) / layer.model_dim,
                                   .pairs = std::vector<int64_t>(layer.experts, 0),
                                   .kept = std::vector<int64_t>(layer.experts, 0),
                                   .probability_sum = std::vector<double>(layer.experts, 0)};
  for (int64_t token = 0; token < plain.tokens; ++token) {
    std::vector<double> logits(layer.experts, 0), scores(layer.experts);
    double all = 0, all_scores = 0;
    for (int expert = 0; expert < layer.experts; ++expert) {
      for (int i = 0; i < layer.model_dim; ++i) {
        logits[expert] +=
            static_cast<double>(input[token * layer.model_dim + i]) * weights.gate[expert * layer.model_dim + i];
      }
      if (layer.router.bias) logits[expert] += weights.gate_bias[expert];
      all += std::exp(logits[expert]);
      const bool sigmoid = layer.router.score_function == ScoreFunction::kSigmoid;
      scores[expert] = sigmoid ? 1 / (1 + std::exp(-logits[expert])) : std::exp(logits[expert]);
      all_scores += scores[expert];
    }
    plain.squared_log_sum_exp_sum += std::log(all) * std::log(all);
    for (int expert = 0; expert < layer.experts; ++expert) {
      const double probability = scores[expert] / all_scores;
      plain.probability_sum[expert] += probability;
      plain.entropy_sum -= probability * std::log(probability);
    }
  }
  for (size_t pair = 0; pair < reference.experts.size(); ++pair) {
    // An expert that chooses has no pair but those it takes.
    plain.pairs[reference.experts[pair]] += layer.gate != GateKind::kExpertChoice || reference.kept[pair];
    plain.kept[reference.experts[pair]] += reference.kept[pair];
  }
  return plain;
}

}  // namespace moeplan::testing
