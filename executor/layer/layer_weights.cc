#include "executor/layer/layer_weights.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

namespace moeplan {
namespace {

enum Tensor : uint64_t { kInput = 1, kGate, kUp, kGateUp, kDown, kOutputGradient };

// splitmix64's finaliser: neighbouring indices give independent-looking values.
uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

// Uniform in (-1, 1).
float Uniform(uint64_t key, uint64_t index) {
  const auto bits = static_cast<int32_t>(Mix(key + Mix(index)) >> 32);
  return static_cast<float>(bits) * 0x1p-31F;
}

class Source {
 public:
  Source(const Layer& layer, uint64_t seed, Tensor tensor, double scale)
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

// The [M][hidden] part of every expert of the shard.
std::vector<float> Columns(const Layer& layer, const ExpertShard& shard, const Source& source) {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(shard.experts) * layer.model_dim * shard.hidden);
  for (int expert = shard.first_expert; expert < shard.first_expert + shard.experts; ++expert) {
    for (int row = 0; row < layer.model_dim; ++row) {
      const uint64_t start =
          (static_cast<uint64_t>(expert) * layer.model_dim + row) * layer.hidden_dim + shard.first_hidden;
      for (int column = 0; column < shard.hidden; ++column) values.push_back(source(start + column));
    }
  }
  return values;
}

// The [hidden][M] part of every expert of the shard.
std::vector<float> Rows(const Layer& layer, const ExpertShard& shard, const Source& source) {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(shard.experts) * layer.model_dim * shard.hidden);
  for (int expert = shard.first_expert; expert < shard.first_expert + shard.experts; ++expert) {
    const uint64_t start = (static_cast<uint64_t>(expert) * layer.hidden_dim + shard.first_hidden) * layer.model_dim;
    const uint64_t count = static_cast<uint64_t>(shard.hidden) * layer.model_dim;
    for (uint64_t i = 0; i < count; ++i) values.push_back(source(start + i));
  }
  return values;
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

double Gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); }
double Silu(double x) { return x / (1 + std::exp(-x)); }
double GeluSlope(double x) {
  const double density = std::exp(-x * x / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  return 0.5 * (1 + std::erf(x / std::numbers::sqrt2)) + x * density;
}
double SiluSlope(double x) {
  const double sigmoid = 1 / (1 + std::exp(-x));
  return sigmoid * (1 + x * (1 - sigmoid));
}

ExpertGradients ZeroGradients(const LayerWeights& weights) {
  return {.up = std::vector<float>(weights.up.size()),
          .gate_up = std::vector<float>(weights.gate_up.size()),
          .down = std::vector<float>(weights.down.size())};
}

ExpertShard ShardOf(const Layer& layer, const Layout& layout, int stage_rank) {
  const int shards = layout.expert_sharding_parallel;
  const int shard = stage_rank % shards;
  const int expert_rank = stage_rank / shards % layout.expert_parallel;
  const int experts = layer.experts / layout.expert_parallel;
  const auto cut = [&](int at) { return static_cast<int>(static_cast<int64_t>(layer.hidden_dim) * at / shards); };
  return {.first_expert = expert_rank * experts,
          .experts = experts,
          .first_hidden = cut(shard),
          .hidden = cut(shard + 1) - cut(shard)};
}

LayerWeights MakeWeights(const Layer& layer, const ExpertShard& shard, uint64_t seed) {
  LayerWeights weights;
  weights.shard = shard;
  // Scaled so that every stage keeps the variance of its input.
  const double wide = std::sqrt(3.0 / layer.model_dim);
  const double narrow = std::sqrt(3.0 / layer.hidden_dim);
  const Source gate(layer, seed, kGate, 2 * wide);
  for (uint64_t i = 0; i < static_cast<uint64_t>(layer.experts) * layer.model_dim; ++i) weights.gate.push_back(gate(i));
  weights.up = Columns(layer, shard, Source(layer, seed, kUp, wide));
  if (layer.expert_matrices == 3) weights.gate_up = Columns(layer, shard, Source(layer, seed, kGateUp, wide));
  weights.down = Rows(layer, shard, Source(layer, seed, kDown, 2 * narrow));
  return weights;
}

std::vector<float> MakeInput(const Layer& layer, const Layout& layout, int batch, uint64_t seed) {
  return TokenRowsOf(layer, layout, batch, Source(layer, seed, kInput, std::sqrt(3.0)));
}

std::vector<float> MakeOutputGradient(const Layer& layer, const Layout& layout, int batch, uint64_t seed) {
  return TokenRowsOf(layer, layout, batch, Source(layer, seed, kOutputGradient, std::sqrt(3.0)));
}

}  // namespace moeplan
