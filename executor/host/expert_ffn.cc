#include "executor/host/expert_ffn.h"

#include <algorithm>

#include "executor/host/gemm.h"
#include "models/check.h"

namespace moeplan::executor {
ExpertFfn::ExpertFfn(const Layer& layer, const ExpertWeightsView& weights, const ExpertGradientsView& gradients)
    : layer_(layer),
      function_(FunctionOf(layer)),
      limit_{layer.swiglu_limit},
      weights_(weights),
      gradients_(gradients) {}

void ExpertFfn::Limit() {
  if (limit_.limit == 0) return;
  for (float& up : up_) up = limit_.Up(up);
  for (float& gate_up : gate_up_) gate_up = limit_.GateUp(gate_up);
}

void ExpertFfn::BecomeHidden() {
  Limit();
  function_.hidden(up_.data(), gated() ? gate_up_.data() : nullptr, up_.data(), up_.size());
}

void ExpertFfn::AddBias(std::span<const float> biases, int expert, int columns, std::span<float> rows) {
  if (biases.empty()) return;
  const float* bias = biases.data() + static_cast<size_t>(expert) * columns;
  for (size_t start = 0; start < rows.size(); start += columns) {
    for (int column = 0; column < columns; ++column) rows[start + column] += bias[column];
  }
}

void ExpertFfn::AddBiasGradient(std::span<const float> rows, int expert, int columns, float scale,
                                std::span<float> gradients) {
  if (gradients.empty()) return;
  float* gradient = gradients.data() + static_cast<size_t>(expert) * columns;
  for (size_t start = 0; start < rows.size(); start += columns) {
    for (int column = 0; column < columns; ++column) gradient[column] += scale * rows[start + column];
  }
}

void ExpertFfn::Keep(int rows, float* kept) const {
  const int hidden = weights_.shard.hidden;
  for (int row = 0; row < rows; ++row) {
    kept = std::copy_n(up_.data() + static_cast<size_t>(row) * hidden, hidden, kept);
    if (gated()) kept = std::copy_n(gate_up_.data() + static_cast<size_t>(row) * hidden, hidden, kept);
  }
}

void ExpertFfn::Separate(int rows, const float* kept, std::vector<float>& up, std::vector<float>& gate_up) const {
  const int hidden = weights_.shard.hidden;
  up.resize(static_cast<size_t>(rows) * hidden);
  if (gated()) gate_up.resize(up.size());
  for (int row = 0; row < rows; ++row, kept += kept_columns()) {
    std::copy_n(kept, hidden, up.data() + static_cast<size_t>(row) * hidden);
    if (gated()) std::copy_n(kept + hidden, hidden, gate_up.data() + static_cast<size_t>(row) * hidden);
  }
}

void ExpertFfn::Forward(int expert, int rows, const float* in, float* kept, float* out) {
  const int hidden = weights_.shard.hidden;
  up_.resize(static_cast<size_t>(rows) * hidden);
  Multiply(in, weights_.up.data() + MatrixAt(expert), up_.data(), rows, layer_.model_dim, hidden);
  AddBias(weights_.up_bias, expert, hidden, up_);
  if (gated()) {
    gate_up_.resize(up_.size());
    Multiply(in, weights_.gate_up.data() + MatrixAt(expert), gate_up_.data(), rows, layer_.model_dim, hidden);
    AddBias(weights_.gate_up_bias, expert, hidden, gate_up_);
  }
  if (kept != nullptr) Keep(rows, kept);
  BecomeHidden();
  Multiply(up_.data(), weights_.down.data() + MatrixAt(expert), out, rows, hidden, layer_.model_dim);
  AddBias(weights_.down_bias, expert, layer_.model_dim, {out, static_cast<size_t>(rows) * layer_.model_dim});
}

void ExpertFfn::FlattenBeyondLimit(int rows, const float* kept) {
  Separate(rows, kept, kept_up_, kept_gate_up_);
  for (size_t i = 0; i < up_.size(); ++i) {
    up_[i] *= limit_.UpSlope(kept_up_[i]);
    gate_up_[i] *= limit_.GateUpSlope(kept_gate_up_[i]);
  }
}

void ExpertFfn::InputGradient(int expert, int rows, const float* kept, const float* out_gradient, float* kept_gradient,
                              float* in_gradient) {
  const int hidden = weights_.shard.hidden;
  Separate(rows, kept, up_, gate_up_);
  hidden_gradient_.resize(up_.size());
  MultiplyByTransposed(out_gradient, weights_.down.data() + MatrixAt(expert), /*add=*/0, hidden_gradient_.data(), rows,
                       layer_.model_dim, hidden);
  Limit();
  function_.gradients(hidden_gradient_.data(), up_.data(), gated() ? gate_up_.data() : nullptr, up_.size());
  if (limit_.limit > 0) FlattenBeyondLimit(rows, kept);
  Keep(rows, kept_gradient);
  MultiplyByTransposed(up_.data(), weights_.up.data() + MatrixAt(expert), /*add=*/0, in_gradient, rows, hidden,
                       layer_.model_dim);
  if (!gated()) return;
  MultiplyByTransposed(gate_up_.data(), weights_.gate_up.data() + MatrixAt(expert), /*add=*/1, in_gradient, rows,
                       hidden, layer_.model_dim);
}

void ExpertFfn::WeightGradient(int expert, int rows, const float* in, const float* kept, const float* out_gradient,
                               const float* kept_gradient, float scale) {
  MOEPLAN_CHECK(gradients_.up.size() == weights_.up.size());
  const int hidden = weights_.shard.hidden;
  const size_t at = MatrixAt(expert);
  Separate(rows, kept_gradient, up_gradient_, gate_up_gradient_);
  AddTransposedProduct(scale, in, up_gradient_.data(), gradients_.up.data() + at, layer_.model_dim, rows, hidden);
  AddBiasGradient(up_gradient_, expert, hidden, scale, gradients_.up_bias);
  if (gated()) {
    AddTransposedProduct(scale, in, gate_up_gradient_.data(), gradients_.gate_up.data() + at, layer_.model_dim, rows,
                         hidden);
    AddBiasGradient(gate_up_gradient_, expert, hidden, scale, gradients_.gate_up_bias);
  }
  AddBiasGradient({out_gradient, static_cast<size_t>(rows) * layer_.model_dim}, expert, layer_.model_dim, scale,
                  gradients_.down_bias);
  Separate(rows, kept, up_, gate_up_);
  BecomeHidden();
  AddTransposedProduct(scale, up_.data(), out_gradient, gradients_.down.data() + at, hidden, rows, layer_.model_dim);
}

}  // namespace moeplan::executor
