// The weights and the input of one MoE layer, made from a seed so that every rank can make its own part, and a
// reference all of it, without talking to anyone.
//
// Values depend on (seed, tensor, index) alone. With 2 bytes per element everything is rounded to BF16 and kept as
// float. Any thread may call these pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/workload/workload.h"

namespace moeplan::executor {

// Experts [first_expert, first_expert + experts) cut to hidden columns [first_hidden, first_hidden + hidden).
struct ExpertShard {
  int first_expert = 0, experts = 0;
  int first_hidden = 0, hidden = 0;
  bool adds_last_bias = false;  // One shard of each expert does: partial outputs are summed.

  friend bool operator==(const ExpertShard&, const ExpertShard&) = default;
};

// What one rank holds. Of the shared expert, where the layer has one, the columns cut over MP.
struct LayerShard {
  ExpertShard experts, shared;
};

struct ExpertWeights {
  ExpertShard shard;
  // Of each expert of the shard, one after the other: up [M][hidden], and for SwiGLU gate_up [M][hidden]; down
  // [hidden][M].
  std::vector<float> up, gate_up, down;
  // With Layer::expert_bias, likewise: up_bias [hidden], gate_up_bias [hidden]; down_bias [M] where the shard adds it.
  std::vector<float> up_bias, gate_up_bias, down_bias;
};

// A router holds these, on every rank alike.
struct GateWeights {
  std::span<const float> weight;           // [E][M]
  std::span<const float> bias;             // [E], where the router has one.
  std::span<const float> correction_bias;  // [E], likewise; it has no gradient.
};
// Their gradients are added to this memory, in the same shapes.
struct GateGradientsView {
  std::span<float> weight, bias;

  GateGradientsView() = default;
  GateGradientsView(std::span<float> weight, std::span<float> bias) : weight(weight), bias(bias) {}
  GateGradientsView(std::vector<float>& weight) : weight(weight) {}  // NOLINT(google-explicit-constructor)
};
// How many values a gradient of them has: that of `weight` and, behind it, of `bias`.
size_t GateGradientValues(const Layer& layer);

struct LayerWeights {
  std::vector<float> gate;                        // [E][M]
  std::vector<float> gate_bias, correction_bias;  // [E] each, where the router has them.
  ExpertWeights experts;
  ExpertWeights shared;  // One expert, or none.
};

// The gradients of what a rank holds of the experts, in the shapes of ExpertWeights; always float.
struct ExpertGradients {
  std::vector<float> up, gate_up, down, up_bias, gate_up_bias, down_bias;
};
struct LayerGradients {
  ExpertGradients experts, shared;
};

// A view says where weights or gradients lie, in the shapes above. The memory is borrowed and stays where it is: a
// vector that a view was made of must not be assigned another's elements by moving.
struct ExpertWeightsView {
  ExpertShard shard;
  std::span<const float> up, gate_up, down, up_bias, gate_up_bias, down_bias;
};
struct LayerWeightsView {
  std::span<const float> gate, gate_bias, correction_bias;
  ExpertWeightsView experts, shared;

  LayerWeightsView() = default;
  LayerWeightsView(const LayerWeights& weights);  // NOLINT(google-explicit-constructor)
  GateWeights router() const { return {gate, gate_bias, correction_bias}; }
};
struct ExpertGradientsView {
  std::span<float> up, gate_up, down, up_bias, gate_up_bias, down_bias;
};
struct LayerGradientsView {
  bool given = false;  // Else nobody wants gradients, and what follows is empty.
  ExpertGradientsView experts, shared;

  LayerGradientsView() = default;
  LayerGradientsView(LayerGradients* gradients);  // NOLINT(google-explicit-constructor): null: not given.
};

// How many values each tensor of a shard has; 0: the shard or the layer has no such tensor.
struct ExpertTensorSizes {
  size_t up = 0, gate_up = 0, down = 0, up_bias = 0, gate_up_bias = 0, down_bias = 0;
};
ExpertTensorSizes TensorSizesOf(const Layer& layer, const ExpertShard& shard);

// Zero, as backward passes want them that add to them.
LayerGradients ZeroGradients(const LayerWeights& weights);

// The shard of a rank in the [ESP, EP, replicas] layout of design.md §3. H need not divide by N_ESP, nor the shared
// expert's columns by N_MP.
LayerShard ShardOf(const Layer& layer, const Layout& layout, int stage_rank);

LayerWeights MakeWeights(const Layer& layer, const LayerShard& shard, uint64_t seed);

// The B·L × M input of source batch `batch` (one for each MP group).
std::vector<float> MakeInput(const Layer& layer, const Layout& layout, int batch, uint64_t seed);

// The B·L × M gradient that comes back for source batch `batch`.
std::vector<float> MakeOutputGradient(const Layer& layer, const Layout& layout, int batch, uint64_t seed);

// Rounds to the nearest BF16, ties to even; the identity on infinities; NaN stays NaN.
float RoundToBfloat16(float value);

}  // namespace moeplan::executor
