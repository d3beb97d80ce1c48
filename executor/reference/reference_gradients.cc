#include "executor/reference/reference_gradients.h"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "models/workload/expert.h"

namespace moeplan::executor {
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
  // The sum of all rows, as one.
  Terms SumOfRows() const { return {value.colwise().sum(), magnitude.colwise().sum()}; }
  // `row` added to every row.
  Terms& AddToRows(const Terms& row) {
    value.rowwise() += row.value.row(0);
    magnitude.rowwise() += row.magnitude.row(0);
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

Terms BiasOf(const std::vector<float>& biases, int expert, int columns) {
  return biases.empty() ? Terms::Zero(1, columns) : FromRows(biases, static_cast<size_t>(expert) * columns, 1, columns);
}

// One expert's FFN on some rows, forward, and its gradients.
class Ffn {
 public:
  Ffn(const Layer& layer, const ExpertWeights& full, int expert, const Matrix& rows)
      : model_(layer.model_dim),
        hidden_(full.shard.hidden),
        gated_(layer.expert_matrices == 3),
        has_biases_(layer.expert_bias),
        function_(FunctionOf(layer)),
        limit_{layer.swiglu_limit},
        at_(static_cast<size_t>(expert) * model_ * hidden_),
        full_(full),
        x_(Terms::Exactly(rows)),
        up_(FromRows(full.up, at_, model_, hidden_)),
        down_(FromRows(full.down, at_, hidden_, model_)),
        u_(x_ * up_) {
    u_.AddToRows(BiasOf(full.up_bias, expert, hidden_));
    if (gated_) {
      g_ = x_ * GateUp();
      g_.AddToRows(BiasOf(full.gate_up_bias, expert, hidden_));
    }
    // What errs of u and g, errs of h by the slopes: where those are steep, h alone would promise too much.
    h_ = Terms::Exactly(OfHidden(function_.value));
    h_.magnitude += UpSlopes().cwiseAbs().cwiseProduct(u_.magnitude);
    if (gated_) h_.magnitude += GateUpSlopes().cwiseAbs().cwiseProduct(g_.magnitude);
    output_ = h_ * down_;
    output_.AddToRows(BiasOf(full.down_bias, expert, model_));
  }

  const Terms& output() const { return output_; }

  // Appends the weights' gradients, which stand expert after expert, and returns that of the rows.
  Terms Backward(const Matrix& output_gradient, ReferenceExpertGradients& gradients) const {
    const Terms y_gradient = Terms::Exactly(output_gradient);
    const Terms h_gradient = y_gradient * down_.transpose();
    const Terms u_gradient = h_gradient.Times(UpSlopes());
    Terms x_gradient = u_gradient * up_.transpose();
    Append(x_.transpose() * u_gradient, gradients.up);
    Append(h_.transpose() * y_gradient, gradients.down);
    if (has_biases_) {
      Append(u_gradient.SumOfRows(), gradients.up_bias);
      Append(y_gradient.SumOfRows(), gradients.down_bias);
    }
    if (!gated_) return x_gradient;
    const Terms g_gradient = h_gradient.Times(GateUpSlopes());
    x_gradient += g_gradient * GateUp().transpose();
    Append(x_.transpose() * g_gradient, gradients.gate_up);
    if (has_biases_) Append(g_gradient.SumOfRows(), gradients.gate_up_bias);
    return x_gradient;
  }

 private:
  Matrix OfHidden(double (*function)(double, double)) const {
    return u_.value.binaryExpr(gated_ ? g_.value : u_.value, [&](double up, double gate_up) {
      return function(limit_.Up(up), limit_.GateUp(gate_up));
    });
  }
  Matrix UpSlopes() const {
    return OfHidden(function_.up_slope).cwiseProduct(u_.value.unaryExpr([&](double up) { return limit_.UpSlope(up); }));
  }
  Matrix GateUpSlopes() const {
    return OfHidden(function_.gate_up_slope).cwiseProduct(g_.value.unaryExpr([&](double gate_up) {
      return limit_.GateUpSlope(gate_up);
    }));
  }
  Terms GateUp() const { return FromRows(full_.gate_up, at_, model_, hidden_); }

  const int model_, hidden_;
  const bool gated_, has_biases_;
  const ExpertFunction function_;
  const SwiGluLimit limit_;
  const size_t at_;
  const ExpertWeights& full_;
  const Terms x_, up_, down_;
  Terms u_, g_, h_, output_;
};

// A (token, choice) of one expert that has a slot.
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
        width_(RoutingWidth(layer)),
        tokens_(static_cast<int>(input.size()) / layer.model_dim),
        input_(FromRows(input, 0, tokens_, layer.model_dim)),
        output_gradient_(FromRows(output_gradient, 0, tokens_, layer.model_dim)),
        gate_(FromRows(full.gate, 0, layer.experts, layer.model_dim)),
        input_gradient_(Terms::Zero(tokens_, layer.model_dim)),
        weight_gradients_(Terms::Zero(1, static_cast<Eigen::Index>(forward.experts.size()))) {}

  ReferenceGradients Compute() {
    WeighPairs();
    for (int expert = 0; expert < layer_.experts; ++expert) Through(expert);
    if (layer_.shared_hidden_dim > 0) {
      const Ffn shared(layer_, full_.shared, /*expert=*/0, input_.value);
      input_gradient_ += shared.Backward(output_gradient_.value, result_.shared);
    }
    Gate();
    Append(input_gradient_, result_.input);
    return result_;
  }

 private:
  size_t PairAt(int token, int choice) const { return static_cast<size_t>(token) * width_ + choice; }
  double ScoreAt(int token, int choice) const { return scores_(token, forward_.experts[PairAt(token, choice)]); }

  bool draws() const { return layer_.gate == GateKind::kRandom || layer_.gate == GateKind::kHash; }
  // Of several experts that a token chose by their scores.
  bool renormalises() const {
    return !draws() && layer_.gate != GateKind::kExpertChoice && width_ > 1 && !layer_.router.raw_weights;
  }
  bool has_sigmoids() const { return layer_.router.score_function == ScoreFunction::kSigmoid; }

  void WeighPairs() {
    Terms logits = input_ * gate_.transpose();
    logits.AddToRows(BiasOf(full_.gate_bias, /*expert=*/0, layer_.experts));
    const Matrix highest = logits.value.rowwise().maxCoeff();
    softmax_ = (logits.value.colwise() - highest.col(0)).array().exp().matrix();
    const Matrix all = softmax_.rowwise().sum();
    softmax_.array().colwise() /= all.col(0).array();
    scores_ = has_sigmoids() ? Matrix((1 + (-logits.value).array().exp()).inverse().matrix()) : softmax_;
    probabilities_ = scores_;
    probabilities_.array().colwise() /= scores_.rowwise().sum().array();
    log_sum_exp_ = {highest + all.array().log().matrix(),
                    logits.magnitude.rowwise().maxCoeff() + all.array().log().matrix()};
    for (int token = 0; token < tokens_; ++token) {
      double chosen = 0;
      for (int choice = 0; choice < width_; ++choice) chosen += ScoreAt(token, choice);
      for (int choice = 0; choice < width_; ++choice) {
        const double score = ScoreAt(token, choice) * layer_.router.weight_scale;
        weights_.push_back(draws() ? 1.0 / width_ : renormalises() ? score / chosen : score);
      }
    }
  }

  std::vector<Kept> KeptOf(int expert) const {
    std::vector<Kept> kept;
    for (size_t pair = 0; pair < forward_.experts.size(); ++pair) {
      if (forward_.experts[pair] == expert && forward_.kept[pair]) {
        kept.push_back({static_cast<int>(pair) / width_, pair});
      }
    }
    return kept;
  }

  void Through(int expert) {
    const std::vector<Kept> kept = KeptOf(expert);
    const auto rows = static_cast<Eigen::Index>(kept.size());
    Matrix x(rows, layer_.model_dim), y_gradient(rows, layer_.model_dim);
    const bool weighs_input = layer_.router.weighs_input;
    for (Eigen::Index i = 0; i < rows; ++i) {
      const double weight = weights_[kept[i].pair];
      x.row(i) = (weighs_input ? weight : 1) * input_.value.row(kept[i].token);
      y_gradient.row(i) = (weighs_input ? 1 : weight) * output_gradient_.value.row(kept[i].token);
    }
    const Ffn ffn(layer_, full_.experts, expert, x);
    const Terms x_gradient = ffn.Backward(y_gradient, result_.experts);
    for (Eigen::Index i = 0; i < rows; ++i) {
      const int token = kept[i].token;
      const Terms& weighed = weighs_input ? x_gradient : ffn.output();
      const auto& by = (weighs_input ? input_ : output_gradient_).value.row(token);
      weight_gradients_.value(0, kept[i].pair) = by.dot(weighed.value.row(i));
      weight_gradients_.magnitude(0, kept[i].pair) = by.cwiseAbs().dot(weighed.magnitude.row(i));
      const double weight = weighs_input ? weights_[kept[i].pair] : 1;
      input_gradient_.value.row(token) += weight * x_gradient.value.row(i);
      input_gradient_.magnitude.row(token) += weight * x_gradient.magnitude.row(i);
    }
  }

  void Gate() {
    Terms logit_gradients = Terms::Zero(tokens_, layer_.experts);
    for (int token = 0; token < tokens_ && !draws(); ++token) {
      for (int choice = 0; choice < width_; ++choice) {
        AddLogitGradients(token, PairAt(token, choice), logit_gradients);
      }
    }
    AddRouterLossGradients(logit_gradients);
    input_gradient_ += logit_gradients * gate_;
    Append(logit_gradients.transpose() * input_, result_.gate);
    if (layer_.router.bias) Append(logit_gradients.SumOfRows(), result_.gate);
  }

  // d weight / d logit of every expert, times the weight's gradient.
  void AddLogitGradients(int token, size_t pair, Terms& logit_gradients) const {
    const int chosen = forward_.experts[pair];
    const auto add = [&](int expert, double share) {
      const double own = expert == chosen ? 1.0 : 0.0;
      const double weight = weights_[pair] * (has_sigmoids() ? 1 - scores_(token, expert) : 1);
      logit_gradients.value(token, expert) += weight * (own - share) * weight_gradients_.value(0, pair);
      logit_gradients.magnitude(token, expert) += weight * (own + share) * weight_gradients_.magnitude(0, pair);
    };
    if (renormalises()) {
      for (int choice = 0; choice < width_; ++choice) {
        add(forward_.experts[PairAt(token, choice)], weights_[PairAt(token, choice)] / layer_.router.weight_scale);
      }
    } else if (has_sigmoids()) {
      add(chosen, 0);
    } else {
      for (int expert = 0; expert < layer_.experts; ++expert) add(expert, probabilities_(token, expert));
    }
  }

  // By expert: how many of the pairs chose it, of those that chose at all.
  std::vector<double> SharesOfPairs() const {
    std::vector<double> shares(layer_.experts, 0.0);
    double all = 0;
    for (size_t pair = 0; pair < forward_.experts.size(); ++pair) {
      if (layer_.gate == GateKind::kExpertChoice && !forward_.kept[pair]) continue;
      shares[forward_.experts[pair]] += 1;
      all += 1;
    }
    for (double& share : shares) share /= all;
    return shares;
  }

  // d (E·Σ f·P) / d logit and d mean(logsumexp²) / d logit, times their coefficients.
  void AddRouterLossGradients(Terms& logit_gradients) const {
    const std::vector<double> shares = SharesOfPairs();
    const double balance = layer_.aux_loss_coefficient * layer_.experts / tokens_;
    const double z = 2 * layer_.z_loss_coefficient / tokens_;
    for (int token = 0; token < tokens_; ++token) {
      double mean = 0;
      for (int expert = 0; expert < layer_.experts; ++expert) mean += shares[expert] * probabilities_(token, expert);
      for (int expert = 0; expert < layer_.experts; ++expert) {
        const double probability = probabilities_(token, expert) * (has_sigmoids() ? 1 - scores_(token, expert) : 1);
        logit_gradients.value(token, expert) += probability * balance * (shares[expert] - mean) +
                                                softmax_(token, expert) * z * log_sum_exp_.value(token, 0);
        logit_gradients.magnitude(token, expert) += probability * balance * (shares[expert] + mean) +
                                                    softmax_(token, expert) * z * log_sum_exp_.magnitude(token, 0);
      }
    }
  }

  const Layer& layer_;
  const LayerWeights& full_;
  const ReferenceOutput& forward_;
  const int width_, tokens_;
  const Terms input_, output_gradient_, gate_;
  Matrix softmax_, scores_, probabilities_;  // [B·L][E]: of the logits; what weights are made of; over their sum.
  Terms log_sum_exp_;                        // [B·L][1]
  std::vector<double> weights_;              // Of each pair.
  Terms input_gradient_, weight_gradients_;
  ReferenceGradients result_;
};

}  // namespace

ReferenceGradient& ReferenceGradient::operator+=(const ReferenceGradient& other) {
  values.resize(other.values.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] += other.values[i];
  largest_magnitude += other.largest_magnitude;
  return *this;
}

ReferenceExpertGradients& ReferenceExpertGradients::operator+=(const ReferenceExpertGradients& other) {
  up += other.up;
  gate_up += other.gate_up;
  down += other.down;
  up_bias += other.up_bias;
  gate_up_bias += other.gate_up_bias;
  down_bias += other.down_bias;
  return *this;
}

ReferenceGradients ComputeReferenceGradients(const Layer& layer, const LayerWeights& full,
                                             const std::vector<float>& input, const std::vector<float>& output_gradient,
                                             const ReferenceOutput& forward) {
  return Backward(layer, full, input, output_gradient, forward).Compute();
}

}  // namespace moeplan::executor
