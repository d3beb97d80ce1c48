// The FFN of one rank's shard of the experts, or of the shared expert, on rows of floats, forward and backward.
//
// Rows are [rows][M]. What the backward pass needs of the forward one is kept a row at a time: the values before the
// nonlinearity, `kept_columns()` of them, those of "up" and, for SwiGLU, behind them those of "gate_up". For the
// compute stream of one rank; scratch is kept between calls.
#pragma once

#include <span>
#include <vector>

#include "executor/layer/layer_weights.h"
#include "models/workload/expert.h"

namespace moeplan::executor {

class ExpertFfn {
 public:
  // `gradients` may be empty where no weight gradient is asked for.
  ExpertFfn(const Layer& layer, const ExpertWeightsView& weights, const ExpertGradientsView& gradients);

  // From now on these, in the same shapes.
  void UseWeights(const ExpertWeightsView& weights) { weights_ = weights; }
  void UseGradients(const ExpertGradientsView& gradients) { gradients_ = gradients; }

  int kept_columns() const { return (layer_.expert_matrices - 1) * weights_.shard.hidden; }

  // `expert` counts within the shard. `kept` may be null.
  void Forward(int expert, int rows, const float* in, float* kept, float* out);
  void InputGradient(int expert, int rows, const float* kept, const float* out_gradient, float* kept_gradient,
                     float* in_gradient);
  // Adds `scale` times the rows' part to the gradients.
  void WeightGradient(int expert, int rows, const float* in, const float* kept, const float* out_gradient,
                      const float* kept_gradient, float scale);

 private:
  bool gated() const { return layer_.expert_matrices == 3; }
  size_t MatrixAt(int expert) const { return static_cast<size_t>(expert) * layer_.model_dim * weights_.shard.hidden; }
  void Keep(int rows, float* kept) const;
  // Limit makes up_ and gate_up_ what the function takes of them, and BecomeHidden then makes up_ the function of both.
  void Limit();
  void BecomeHidden();
  // The gradients in up_ and gate_up_ become 0 where the kept value was beyond the limit.
  void FlattenBeyondLimit(int rows, const float* kept);
  // To every row of `columns` values, the bias of `expert`, if there are biases; and the mirror of that.
  static void AddBias(std::span<const float> biases, int expert, int columns, std::span<float> rows);
  static void AddBiasGradient(std::span<const float> rows, int expert, int columns, float scale,
                              std::span<float> gradients);
  // Kept rows as one matrix of each kind.
  void Separate(int rows, const float* kept, std::vector<float>& up, std::vector<float>& gate_up) const;

  const Layer layer_;
  const ExpertFunction function_;
  const SwiGluLimit limit_;
  ExpertWeightsView weights_;
  ExpertGradientsView gradients_;
  std::vector<float> up_, gate_up_, kept_up_, kept_gate_up_, hidden_gradient_, up_gradient_, gate_up_gradient_;
};

}  // namespace moeplan::executor
