// The weights of a layer on a card and the gradients of them, and copies of the host's there.
//
// Copies are for a job that changes and reads memory of the host (executor/moe_layer.h): weights are copied to the
// card by Refresh, each through pinned memory and rounded there, and gradients are added to the host's by HandBack.
// Both are queued, and move every value at every call.
#pragma once

#include <array>

#include "executor/cuda/cuda_device.h"
#include "executor/layer/layer_weights.h"
#include "executor/rows.h"

namespace moeplan::executor::cuda {

// The experts of a shard on the card, in the shapes of ExpertWeights; null where the shard has none.
struct CardExperts {
  const std::byte *up = nullptr, *gate_up = nullptr, *down = nullptr;  // Elements of the layer.
  const float *up_bias = nullptr, *gate_up_bias = nullptr, *down_bias = nullptr;
};
struct CardGradients {
  float *up = nullptr, *gate_up = nullptr, *down = nullptr;
  float *up_bias = nullptr, *gate_up_bias = nullptr, *down_bias = nullptr;
};

// What a rank holds of a layer, all in memory of the card.
struct CardLayer {
  const float* gate = nullptr;  // [E][M]
  CardExperts experts, shared;
};
// Weight gradients add to it. Null where the shard or the layer has none.
struct CardLayerGradients {
  CardGradients experts, shared;
};

class CardWeights {
 public:
  CardWeights(CudaDevice& device, ElementType type, const LayerWeightsView& weights)
      : device_(device), type_(type), weights_(weights) {}

  void Use(const LayerWeightsView& weights) { weights_ = weights; }
  // Allocates. Values come with the first Refresh.
  Status Init();
  // Whatever is queued next on `stream` finds what the host has when the stream gets here.
  Status Refresh(Stream& stream);

  // After Init.
  CardLayer view() const {
    return {.gate = reinterpret_cast<const float*>(gate_.data()), .experts = experts_.view, .shared = shared_.view};
  }

 private:
  struct Part {
    DeviceMemory up, gate_up, down, up_bias, gate_up_bias, down_bias;
    CardExperts view;
  };
  Status Allocate(const ExpertWeightsView& weights, Part& part);
  Status Refresh(const ExpertWeightsView& weights, const Part& part, Stream& stream);
  Status CopyElements(std::span<const float> from, const DeviceMemory& to, Stream& stream);
  void CopyFloats(std::span<const float> from, const DeviceMemory& to, Stream& stream);

  CudaDevice& device_;
  const ElementType type_;
  LayerWeightsView weights_;
  DeviceMemory gate_, unrounded_;
  Part experts_, shared_;
};

class GradientSums {
 public:
  // `gradients` are in the shapes of `weights`.
  GradientSums(CudaDevice& device, const ExpertWeightsView& weights, const ExpertGradientsView& gradients);

  void Use(const ExpertGradientsView& gradients) { gradients_ = gradients; }
  // Allocates; the sums are zero.
  Status Init();
  // After Init.
  CardGradients view() const;
  // Adds what is there to the host's gradients, and begins at zero again.
  Status HandBack(Stream& stream);

 private:
  CudaDevice& device_;
  ExpertGradientsView gradients_;
  std::array<size_t, 7> first_ = {};  // Of each tensor, in floats, and behind them their number.
  DeviceMemory sums_;
  std::vector<float> on_host_;
};

}  // namespace moeplan::executor::cuda
