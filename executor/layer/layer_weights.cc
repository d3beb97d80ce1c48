#include "executor/layer/layer_weights.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "executor/layer/mix.h"

namespace moeplan::executor {
namespace {

enum Tensor : uint64_t {
  kInput = 1,
  kGate,
  kUp,
  kGateUp,
  kDown,
  kUpBias,
  kGateUpBias,
  kDownBias,
  kOutputGradient,
  kGateBias,
  kCorrectionBias
};
// Added to the tensors of the shared expert.
constexpr uint64_t kShared = 16;

// Uniform in (-1, 1).
float Uniform(uint64_t key, uint64_t index) {
  const auto bits = static_cast<int32_t>(Mix(key + Mix(index)) >> 32);
  return static_cast<float>(bits) * 0x1p-31F;
}

class Source {
 public:
  Source(const Layer& layer, uint64_t seed, uint64_t tensor, double scale)
      : key_(Mix(seed * 31 + tensor)), scale_(static_cast<float>(scale)), rounds_(layer.bytes_per_element == 2) {}

  float operator()(uint64_t index) const {
    const float value = scale_ * Uniform(key_, index);
    return rounds_ ? RoundToBfloat16(value) : value;
  }

 private:
  uint64_t key_;
  float scale_;
  bool rounds_;
};

// Values [first, first + count) of every row of a matrix whose rows are `width` wide.
std::vector<float> Columns(const Source& source, int64_t first_row, int64_t rows, int64_t width, int64_t first,
                           int64_t count) {
  std::vector<float> values;
  values.reserve(rows * count);
  for (int64_t row = first_row; row < first_row + rows; ++row) {
    for (int64_t column = first; column < first + count; ++column) values.push_back(source(row * width + column));
  }
  return values;
}

// The experts of a shard, of `hidden_dim` columns when uncut.
class ExpertMaker {
 public:
  ExpertMaker(const Layer& layer, const ExpertShard& shard, int hidden_dim, uint64_t seed, uint64_t first_tensor)
      : layer_(layer), shard_(shard), hidden_dim_(hidden_dim), seed_(seed), first_tensor_(first_tensor) {}

  ExpertWeights Make() const {
    // Scaled so that every stage keeps the variance of its input.
    const double wide = std::sqrt(3.0 / layer_.model_dim), narrow = std::sqrt(3.0 / hidden_dim_);
    ExpertWeights weights;
    weights.shard = shard_;
    weights.up = Hidden(kUp, wide, layer_.model_dim);
    if (layer_.expert_matrices == 3) weights.gate_up = Hidden(kGateUp, wide, layer_.model_dim);
    // The [hidden][M] part of an expert is one run of values.
    const int64_t row = layer_.model_dim;
    weights.down = Columns(From(kDown, 2 * narrow), shard_.first_expert, shard_.experts, hidden_dim_ * row,
                           shard_.first_hidden * row, shard_.hidden * row);
    if (layer_.expert_bias) AddBiases(weights);
    return weights;
  }

 private:
  Source From(Tensor tensor, double scale) const { return {layer_, seed_, first_tensor_ + tensor, scale}; }

  // The shard's columns of `rows` rows an expert.
  std::vector<float> Hidden(Tensor tensor, double scale, int64_t rows) const {
    return Columns(From(tensor, scale), shard_.first_expert * rows, shard_.experts * rows, hidden_dim_,
                   shard_.first_hidden, shard_.hidden);
  }

  void AddBiases(ExpertWeights& weights) const {
    constexpr double kScale = 0.5;
    weights.up_bias = Hidden(kUpBias, kScale, 1);
    if (layer_.expert_matrices == 3) weights.gate_up_bias = Hidden(kGateUpBias, kScale, 1);
    if (!shard_.adds_last_bias) return;
    weights.down_bias =
        Columns(From(kDownBias, kScale), shard_.first_expert, shard_.experts, layer_.model_dim, 0, layer_.model_dim);
  }

  const Layer& layer_;
  const ExpertShard& shard_;
  const int hidden_dim_;
  const uint64_t seed_, first_tensor_;
};

// Part `part` of `hidden_dim` columns cut into `parts`.
ExpertShard CutOf(int hidden_dim, int part, int parts) {
  const auto cut = [&](int at) { return static_cast<int>(static_cast<int64_t>(hidden_dim) * at / parts); };
  return {.first_hidden = cut(part), .hidden = cut(part + 1) - cut(part), .adds_last_bias = part == 0};
}

std::vector<float> TokenRowsOf(const Layer& layer, const Layout& layout, int batch, const Source& source) {
  const auto values_per_batch = static_cast<uint64_t>(SizesOf(layer, layout).tokens) * layer.model_dim;
  std::vector<float> values(values_per_batch);
  for (uint64_t i = 0; i < values_per_batch; ++i) values[i] = source(batch * values_per_batch + i);
  return values;
}

}  // namespace

float RoundToBfloat16(float value) {
  if (std::isnan(value)) return std::numeric_limits<float>::quiet_NaN();
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000U;
  return std::bit_cast<float>(rounded);
}

namespace {
ExpertWeightsView ViewOf(const ExpertWeights& weights) {
  return {.shard = weights.shard,
          .up = weights.up,
          .gate_up = weights.gate_up,
          .down = weights.down,
          .up_bias = weights.up_bias,
          .gate_up_bias = weights.gate_up_bias,
          .down_bias = weights.down_bias};
}

ExpertGradientsView ViewOf(ExpertGradients& gradients) {
  return {.up = gradients.up,
          .gate_up = gradients.gate_up,
          .down = gradients.down,
          .up_bias = gradients.up_bias,
          .gate_up_bias = gradients.gate_up_bias,
          .down_bias = gradients.down_bias};
}

ExpertGradients ZeroGradientsOf(const ExpertWeights& weights) {
  const auto zeros = [](const std::vector<float>& like) { return std::vector<float>(like.size()); };
  return {.up = zeros(weights.up),
          .gate_up = zeros(weights.gate_up),
          .down = zeros(weights.down),
          .up_bias = zeros(weights.up_bias),
          .gate_up_bias = zeros(weights.gate_up_bias),
          .down_bias = zeros(weights.down_bias)};
}
}  // namespace

ExpertTensorSizes TensorSizesOf(const Layer& layer, const ExpertShard& shard) {
  const auto experts = static_cast<size_t>(shard.experts), hidden = static_cast<size_t>(shard.hidden);
  const size_t matrix = experts * hidden * layer.model_dim;
  const size_t gated = layer.expert_matrices == 3 ? 1 : 0, biased = layer.expert_bias ? 1 : 0;
  const size_t last_biases = shard.adds_last_bias ? experts * layer.model_dim : 0;
  return {.up = matrix,
          .gate_up = gated * matrix,
          .down = matrix,
          .up_bias = biased * experts * hidden,
          .gate_up_bias = gated * biased * experts * hidden,
          .down_bias = biased * last_biases};
}

size_t GateGradientValues(const Layer& layer) {
  return static_cast<size_t>(layer.experts) * (layer.model_dim + (layer.router.bias ? 1 : 0));
}

LayerWeightsView::LayerWeightsView(const LayerWeights& weights)
    : gate(weights.gate),
      gate_bias(weights.gate_bias),
      correction_bias(weights.correction_bias),
      experts(ViewOf(weights.experts)),
      shared(ViewOf(weights.shared)) {}

LayerGradientsView::LayerGradientsView(LayerGradients* gradients) : given(gradients != nullptr) {
  if (!given) return;
  experts = ViewOf(gradients->experts);
  shared = ViewOf(gradients->shared);
}

LayerGradients ZeroGradients(const LayerWeights& weights) {
  return {.experts = ZeroGradientsOf(weights.experts), .shared = ZeroGradientsOf(weights.shared)};
}

LayerShard ShardOf(const Layer& layer, const Layout& layout, int stage_rank) {
  const int shards = layout.expert_sharding_parallel;
  LayerShard shard;
  shard.experts = CutOf(layer.hidden_dim, stage_rank % shards, shards);
  shard.experts.experts = layer.experts / layout.expert_parallel;
  shard.experts.first_expert = stage_rank / shards % layout.expert_parallel * shard.experts.experts;
  if (layer.shared_hidden_dim == 0) return shard;
  shard.shared = CutOf(layer.shared_hidden_dim, stage_rank % layout.tensor_parallel, layout.tensor_parallel);
  shard.shared.experts = 1;
  return shard;
}

LayerWeights MakeWeights(const Layer& layer, const LayerShard& shard, uint64_t seed) {
  LayerWeights weights;
  const Source gate(layer, seed, kGate, 2 * std::sqrt(3.0 / layer.model_dim));
  for (uint64_t i = 0; i < static_cast<uint64_t>(layer.experts) * layer.model_dim; ++i) weights.gate.push_back(gate(i));
  const auto biases = [&](bool are_there, Tensor tensor, double scale) {
    const Source source(layer, seed, tensor, scale);
    std::vector<float> values(are_there ? layer.experts : 0);
    for (size_t i = 0; i < values.size(); ++i) values[i] = source(i);
    return values;
  };
  weights.gate_bias = biases(layer.router.bias, kGateBias, 0.5);
  weights.correction_bias = biases(layer.router.correction_bias, kCorrectionBias, 0.3);
  weights.experts = ExpertMaker(layer, shard.experts, layer.hidden_dim, seed, 0).Make();
  if (layer.shared_hidden_dim == 0) return weights;
  weights.shared = ExpertMaker(layer, shard.shared, layer.shared_hidden_dim, seed, kShared).Make();
  return weights;
}

std::vector<float> MakeInput(const Layer& layer, const Layout& layout, int batch, uint64_t seed) {
  return TokenRowsOf(layer, layout, batch, Source(layer, seed, kInput, std::sqrt(3.0)));
}

std::vector<float> MakeOutputGradient(const Layer& layer, const Layout& layout, int batch, uint64_t seed) {
  return TokenRowsOf(layer, layout, batch, Source(layer, seed, kOutputGradient, std::sqrt(3.0)));
}

}  // namespace moeplan::executor
