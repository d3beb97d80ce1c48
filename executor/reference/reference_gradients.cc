#include "executor/reference/reference_gradients.h"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>

namespace moeplan {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using FloatMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// A matrix beside what it would be if no two of the terms it was made of cancelled.
struct Terms {
  Matrix value, magnitude;

  static Terms Zero(Eigen::Index rows, Eigen::Index columns) {
    return {Matrix::Zero(rows, columns), Matrix::Zero(rows, columns)};
  }
  static Terms Exactly(Matrix value) { return {value, value.cwiseAbs()}; }

  Terms transpose() const { return {value.transpose(), magnitude.transpose()}; }
  Terms operator*(const Terms& other) const { return {value * other.value, magnitude * other.magnitude}; }
  Terms& operator+=(const Terms& other) {
    value += other.value;
    magnitude += other.magnitude;
    return *this;
  }
  // Element by element.
  Terms Times(const Matrix& factor) const {
    return {value.cwiseProduct(factor), magnitude.cwiseProduct(factor.cwiseAbs())};
  }
};

Terms FromRows(const std::vector<float>& all, size_t first, Eigen::Index rows, Eigen::Index columns) {
  return Terms::Exactly(Eigen::Map<const FloatMatrix>(all.data() + first, rows, columns).cast<double>());
}

void Append(const Terms& terms, ReferenceGradient& gradient) {
  gradient.values.insert(gradient.values.end(), terms.value.data(), terms.value.data() + terms.value.size());
  if (terms.magnitude.size() > 0) {
    gradient.largest_magnitude = std::max(gradient.largest_magnitude, terms.magnitude.maxCoeff());
  }
}

// A kept (token, choice) of one expert.
struct Kept {
  int token;
  size_t pair;
};

class Backward {
 public:
  Backward(const Layer& layer, const LayerWeights& full, const std::vector<float>& input,
           const std::vector<float>& output_gradient, const ReferenceOutput& forward)
      : layer_(layer),
        full_(full),
        forward_(forward),
        tokens_(static_cast<int>(input.size()) / layer.model_dim),
        input_(FromRows(input, 0, tokens_, layer.model_dim)),
        output_gradient_(FromRows(output_gradient, 0, tokens_, layer.model_dim)),
        gate_(FromRows(full.gate, 0, layer.experts, layer.model_dim)),
        input_gradient_(Terms::Zero(tokens_, layer.model_dim)),
        weight_gradients_(Terms::Zero(1, static_cast<Eigen::Index>(forward.experts.size()))) {}

  ReferenceGradients Compute() {
    WeighPairs();
    for (int expert = 0; expert < layer_.experts; ++expert) Through(expert);
    Gate();
    Append(input_gradient_, result_.input);
    return result_;
  }

 private:
  size_t PairAt(int token, int choice) const { return static_cast<size_t>(token) * layer_.top_k + choice; }

  // Top-k: softmax over all experts, renormalised over the chosen ones when there are several.
  void WeighPairs() {
    const Matrix logits = input_.value * gate_.value.transpose();
    probabilities_ = (logits.colwise() - logits.rowwise().maxCoeff()).array().exp().matrix();
    probabilities_.array().colwise() /= probabilities_.rowwise().sum().array().eval();
    for (int token = 0; token < tokens_; ++token) {
      double chosen = 0;
      for (int choice = 0; choice < layer_.top_k; ++choice) {
        chosen += probabilities_(token, forward_.experts[PairAt(token, choice)]);
      }
      for (int choice = 0; choice < layer_.top_k; ++choice) {
        const double probability = probabilities_(token, forward_.experts[PairAt(token, choice)]);
        weights_.push_back(layer_.top_k == 1 ? probability : probability / chosen);
      }
    }
  }

  std::vector<Kept> KeptOf(int expert) const {
    std::vector<Kept> kept;
    for (size_t pair = 0; pair < forward_.experts.size(); ++pair) {
      if (forward_.experts[pair] == expert && !forward_.dropped[pair]) {
        kept.push_back({static_cast<int>(pair) / layer_.top_k, pair});
      }
    }
    return kept;
  }

  void Through(int expert) {
    const std::vector<Kept> kept = KeptOf(expert);
    const auto rows = static_cast<Eigen::Index>(kept.size());
    const int model = layer_.model_dim, hidden = layer_.hidden_dim;
    const size_t at = static_cast<size_t>(expert) * model * hidden;
    const bool gated = layer_.expert_matrices == 3;
    const Terms up = FromRows(full_.up, at, model, hidden), down = FromRows(full_.down, at, hidden, model);
    Terms x = Terms::Zero(rows, model), y_gradient = x;
    for (Eigen::Index i = 0; i < rows; ++i) {
      x.value.row(i) = input_.value.row(kept[i].token);
      y_gradient.value.row(i) = weights_[kept[i].pair] * output_gradient_.value.row(kept[i].token);
    }
    x = Terms::Exactly(x.value);
    y_gradient = Terms::Exactly(y_gradient.value);

    const Terms u = x * up;
    const Terms g = gated ? x * FromRows(full_.gate_up, at, model, hidden) : Terms::Zero(rows, hidden);
    const Matrix active =
        gated ? Matrix(u.value.cwiseProduct(g.value.unaryExpr(&Silu))) : Matrix(u.value.unaryExpr(&Gelu));
    const Terms h = Terms::Exactly(active);
    const Terms y = h * down;
    for (Eigen::Index i = 0; i < rows; ++i) {
      const auto& gradient = output_gradient_.value.row(kept[i].token);
      weight_gradients_.value(0, kept[i].pair) = gradient.dot(y.value.row(i));
      weight_gradients_.magnitude(0, kept[i].pair) = gradient.cwiseAbs().dot(y.magnitude.row(i));
    }

    const Terms h_gradient = y_gradient * down.transpose();
    const Terms u_gradient =
        h_gradient.Times(gated ? Matrix(g.value.unaryExpr(&Silu)) : Matrix(u.value.unaryExpr(&GeluSlope)));
    Terms x_gradient = u_gradient * up.transpose();
    Append(x.transpose() * u_gradient, result_.up);
    Append(h.transpose() * y_gradient, result_.down);
    if (gated) {
      const Terms g_gradient = h_gradient.Times(u.value.cwiseProduct(g.value.unaryExpr(&SiluSlope)));
      x_gradient += g_gradient * FromRows(full_.gate_up, at, model, hidden).transpose();
      Append(x.transpose() * g_gradient, result_.gate_up);
    }
    for (Eigen::Index i = 0; i < rows; ++i) {
      input_gradient_.value.row(kept[i].token) += x_gradient.value.row(i);
      input_gradient_.magnitude.row(kept[i].token) += x_gradient.magnitude.row(i);
    }
  }

  void Gate() {
    Terms logit_gradients = Terms::Zero(tokens_, layer_.experts);
    for (int token = 0; token < tokens_; ++token) {
      for (int choice = 0; choice < layer_.top_k; ++choice) {
        AddLogitGradients(token, PairAt(token, choice), logit_gradients);
      }
    }
    input_gradient_ += logit_gradients * gate_;
    Append(logit_gradients.transpose() * input_, result_.gate);
  }

  // d weight / d logit of every expert, times the weight's gradient.
  void AddLogitGradients(int token, size_t pair, Terms& logit_gradients) const {
    const int chosen = forward_.experts[pair];
    const auto add = [&](int expert, double share) {
      const double slope = weights_[pair] * ((expert == chosen ? 1.0 : 0.0) - share);
      logit_gradients.value(token, expert) += slope * weight_gradients_.value(0, pair);
      logit_gradients.magnitude(token, expert) += std::abs(slope) * weight_gradients_.magnitude(0, pair);
    };
    if (layer_.top_k == 1) {
      for (int expert = 0; expert < layer_.experts; ++expert) add(expert, probabilities_(token, expert));
      return;
    }
    for (int choice = 0; choice < layer_.top_k; ++choice) {
      add(forward_.experts[PairAt(token, choice)], weights_[PairAt(token, choice)]);
    }
  }

  const Layer& layer_;
  const LayerWeights& full_;
  const ReferenceOutput& forward_;
  const int tokens_;
  const Terms input_, output_gradient_, gate_;
  Matrix probabilities_;         // [B·L][E]
  std::vector<double> weights_;  // Of each pair.
  Terms input_gradient_, weight_gradients_;
  ReferenceGradients result_;
};

}  // namespace

ReferenceGradient& ReferenceGradient::operator+=(const ReferenceGradient& other) {
  if (values.empty()) values.resize(other.values.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] += other.values[i];
  largest_magnitude += other.largest_magnitude;
  return *this;
}

ReferenceGradients ComputeReferenceGradients(const Layer& layer, const LayerWeights& full,
                                             const std::vector<float>& input, const std::vector<float>& output_gradient,
                                             const ReferenceOutput& forward) {
  return Backward(layer, full, input, output_gradient, forward).Compute();
}

}  // namespace moeplan
