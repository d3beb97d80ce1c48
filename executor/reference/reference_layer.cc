#include "executor/reference/reference_layer.h"

#include <Eigen/Core>
#include <algorithm>
#include <map>
#include <tuple>

#include "executor/host/gating.h"
#include "models/workload/expert.h"

namespace moeplan::executor {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using FloatMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Matrix ExpertMatrix(const std::vector<float>& all, int expert, int rows, int columns) {
  const size_t size = static_cast<size_t>(rows) * columns;
  return Eigen::Map<const FloatMatrix>(all.data() + expert * size, rows, columns).cast<double>();
}

// One row; zero where there are no biases.
Matrix Bias(const std::vector<float>& all, int expert, int columns) {
  return all.empty() ? Matrix::Zero(1, columns) : ExpertMatrix(all, expert, 1, columns);
}

struct Computed {
  Matrix output, magnitude;
};

Computed FeedForward(const Layer& layer, const ExpertWeights& full, int expert, const Matrix& rows) {
  const int model = layer.model_dim, hidden_dim = full.shard.hidden;
  const auto through = [&](const std::vector<float>& matrix, const std::vector<float>& bias) -> Matrix {
    return (rows * ExpertMatrix(matrix, expert, model, hidden_dim)).rowwise() + Bias(bias, expert, hidden_dim).row(0);
  };
  const Matrix up = through(full.up, full.up_bias);
  const Matrix gate_up = layer.expert_matrices == 3 ? through(full.gate_up, full.gate_up_bias) : up;
  const SwiGluLimit limit = {layer.swiglu_limit};
  const Matrix hidden =
      up.binaryExpr(gate_up, [&](double u, double g) { return FunctionOf(layer).value(limit.Up(u), limit.GateUp(g)); });
  const Matrix down = ExpertMatrix(full.down, expert, hidden_dim, model), bias = Bias(full.down_bias, expert, model);
  return {(hidden * down).rowwise() + bias.row(0),
          (hidden.cwiseAbs() * down.cwiseAbs()).rowwise() + bias.cwiseAbs().row(0)};
}

// A (token, expert) pair that wants a slot.
struct Pair {
  int token = 0;
  int choice = 0;  // Which of the token's, and where in its row of the routing.
  int32_t expert = 0;
  double weight = 0;
  double priority = 0;  // The token's largest probability.
};

// All pairs, in lexicographic order. Where experts choose, every expert is a choice of every token.
std::vector<Pair> PairsOf(const Layer& layer, const GateWeights& gate, const std::vector<float>& input, int tokens) {
  const int width = RoutingWidth(layer);
  std::vector<float> logits(layer.experts), scores(layer.experts), weights(width);
  std::vector<float> keys(layer.experts + layer.router.expert_groups);
  std::vector<int32_t> experts(width);
  std::vector<Pair> pairs;
  for (int token = 0; token < tokens; ++token) {
    const std::span row = std::span(input).subspan(static_cast<size_t>(token) * layer.model_dim, layer.model_dim);
    GateLogits(row, gate, logits);
    const GateScore score = Scores(layer, logits, scores);
    if (layer.gate == GateKind::kExpertChoice) {
      for (int expert = 0; expert < width; ++expert) experts[expert] = expert;
      weights = scores;
    } else {
      ChooseExperts(layer, {.index = token, .row = row, .logits = logits, .scores = scores}, gate.correction_bias, keys,
                    experts, weights);
    }
    for (int choice = 0; choice < width; ++choice) {
      pairs.push_back({token, choice, experts[choice], weights[choice], score.largest_probability});
    }
  }
  return pairs;
}

// Smaller gets its slot first.
std::tuple<int, double, int, int> TurnOf(GateKind gate, const Pair& pair) {
  switch (gate) {
    case GateKind::kBatchPrioritized: return {pair.choice, -pair.priority, pair.token, 0};
    case GateKind::kExpertChoice: return {0, -pair.weight, pair.token, 0};
    default: return {pair.token, 0, pair.choice, 0};
  }
}

// The pairs that get one of the `capacity` slots that every expert has for each slice of `slice_tokens` tokens.
std::vector<Pair> KeptOf(const Layer& layer, std::vector<Pair> pairs, int capacity, int slice_tokens) {
  std::ranges::sort(pairs, {}, [&](const Pair& pair) { return TurnOf(layer.gate, pair); });
  std::map<std::pair<int, int>, int> used;  // By slice and expert.
  std::vector<Pair> kept;
  for (const Pair& pair : pairs) {
    if (used[{pair.token / slice_tokens, pair.expert}]++ < capacity) kept.push_back(pair);
  }
  return kept;
}

}  // namespace

ReferenceOutput ComputeReference(const Layer& layer, const LayerWeights& full, const std::vector<float>& input,
                                 int capacity, int slices) {
  const int tokens = static_cast<int>(input.size() / layer.model_dim);
  const int slice_tokens = (tokens + slices - 1) / slices;
  const std::vector<Pair> pairs = PairsOf(layer, LayerWeightsView(full).router(), input, tokens);
  const std::vector<Pair> kept = KeptOf(layer, pairs, capacity, slice_tokens);
  ReferenceOutput result;
  for (const Pair& pair : pairs) result.experts.push_back(pair.expert);
  result.kept.resize(pairs.size());
  for (const Pair& pair : kept) result.kept[pair.token * RoutingWidth(layer) + pair.choice] = true;

  Matrix output = Matrix::Zero(tokens, layer.model_dim), magnitude = output;
  const Matrix rows = Eigen::Map<const FloatMatrix>(input.data(), tokens, layer.model_dim).cast<double>();
  for (int expert = 0; expert < layer.experts; ++expert) {
    std::vector<Pair> own;
    std::ranges::copy_if(kept, std::back_inserter(own), [&](const Pair& pair) { return pair.expert == expert; });
    if (own.empty()) continue;
    Matrix chosen(own.size(), layer.model_dim);
    const auto weight_on = [&](const Pair& pair, bool input) {
      return layer.router.weighs_input == input ? pair.weight : 1;
    };
    for (size_t i = 0; i < own.size(); ++i) chosen.row(i) = weight_on(own[i], true) * rows.row(own[i].token);
    const Computed computed = FeedForward(layer, full.experts, expert, chosen);
    for (size_t i = 0; i < own.size(); ++i) {
      output.row(own[i].token) += weight_on(own[i], false) * computed.output.row(i);
      magnitude.row(own[i].token) += weight_on(own[i], false) * computed.magnitude.row(i);
    }
  }
  if (layer.shared_hidden_dim > 0) {
    const Computed shared = FeedForward(layer, full.shared, /*expert=*/0, rows);
    output += shared.output;
    magnitude += shared.magnitude;
  }
  result.output.assign(output.data(), output.data() + output.size());
  result.largest_magnitude = magnitude.maxCoeff();
  return result;
}

}  // namespace moeplan::executor
