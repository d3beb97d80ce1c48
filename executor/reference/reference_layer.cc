#include "executor/reference/reference_layer.h"

#include <Eigen/Core>
#include <algorithm>

#include "executor/host/gating.h"

namespace moeplan {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using FloatMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Matrix ExpertMatrix(const std::vector<float>& all, int expert, int rows, int columns) {
  const size_t size = static_cast<size_t>(rows) * columns;
  return Eigen::Map<const FloatMatrix>(all.data() + expert * size, rows, columns).cast<double>();
}

struct Computed {
  Matrix output, magnitude;
};

Computed FeedForward(const Layer& layer, const LayerWeights& full, int expert, const Matrix& rows) {
  Matrix hidden = rows * ExpertMatrix(full.up, expert, layer.model_dim, layer.hidden_dim);
  if (layer.expert_matrices == 3) {
    const Matrix gate = rows * ExpertMatrix(full.gate_up, expert, layer.model_dim, layer.hidden_dim);
    hidden = hidden.cwiseProduct(gate.unaryExpr(&Silu));
  } else {
    hidden = hidden.unaryExpr(&Gelu);
  }
  const Matrix down = ExpertMatrix(full.down, expert, layer.hidden_dim, layer.model_dim);
  return {hidden * down, hidden.cwiseAbs() * down.cwiseAbs()};
}

struct Choice {
  int token;
  double weight;
};

}  // namespace

ReferenceOutput ComputeReference(const Layer& layer, const LayerWeights& full, const std::vector<float>& input,
                                 int capacity, int slices) {
  const int tokens = static_cast<int>(input.size() / layer.model_dim);
  const int slice_tokens = (tokens + slices - 1) / slices;
  ReferenceOutput result;
  std::vector<std::vector<Choice>> kept(layer.experts);
  std::vector<int> used(layer.experts);
  std::vector<float> logits(layer.experts), weights(layer.top_k);
  std::vector<int32_t> experts(layer.top_k);
  for (int token = 0; token < tokens; ++token) {
    if (token % slice_tokens == 0) std::ranges::fill(used, 0);
    GateLogits(std::span(input).subspan(static_cast<size_t>(token) * layer.model_dim, layer.model_dim), full.gate,
               logits);
    ChooseExperts(logits, experts, weights);
    for (int choice = 0; choice < layer.top_k; ++choice) {
      const bool fits = used[experts[choice]]++ < capacity;
      result.experts.push_back(experts[choice]);
      result.dropped.push_back(!fits);
      if (fits) kept[experts[choice]].push_back({token, weights[choice]});
    }
  }
  Matrix output = Matrix::Zero(tokens, layer.model_dim), magnitude = output;
  const auto rows = Eigen::Map<const FloatMatrix>(input.data(), tokens, layer.model_dim);
  for (int expert = 0; expert < layer.experts; ++expert) {
    if (kept[expert].empty()) continue;
    Matrix chosen(kept[expert].size(), layer.model_dim);
    for (size_t i = 0; i < kept[expert].size(); ++i) chosen.row(i) = rows.row(kept[expert][i].token).cast<double>();
    const Computed computed = FeedForward(layer, full, expert, chosen);
    for (size_t i = 0; i < kept[expert].size(); ++i) {
      const auto& [token, weight] = kept[expert][i];
      output.row(token) += weight * computed.output.row(i);
      magnitude.row(token) += weight * computed.magnitude.row(i);
    }
  }
  result.output.assign(output.data(), output.data() + output.size());
  result.largest_magnitude = magnitude.maxCoeff();
  return result;
}

}  // namespace moeplan
