// Copies on a card of the weights of a layer that are the host's, and sums there of their gradients.
//
// They are for a job that changes and reads memory of the host (executor/moe_layer.h): weights are copied to the
// card by Refresh, each through pinned memory and rounded there, and gradients are added to the host's by HandBack.
// Both are queued, and move every value at every call.
#pragma once

#include <array>

#include "executor/cuda/cuda_device.h"
#include "executor/layer/device_weights.h"
#include "executor/rows.h"

namespace moeplan::executor::cuda {

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
  DeviceWeights view() const {
    return {.gate = FloatsOf(gate_),
            .gate_bias = FloatsOf(gate_bias_),
            .correction_bias = FloatsOf(correction_bias_),
            .experts = experts_.view,
            .shared = shared_.view};
  }

 private:
  struct Part {
    DeviceMemory up, gate_up, down, up_bias, gate_up_bias, down_bias;
    DeviceExperts view;
  };
  // Null where there are none.
  static const float* FloatsOf(const DeviceMemory& memory) {
    return memory.bytes() == 0 ? nullptr : reinterpret_cast<const float*>(memory.data());
  }
  Status Allocate(const ExpertWeightsView& weights, Part& part);
  Status Refresh(const ExpertWeightsView& weights, const Part& part, Stream& stream);
  Status CopyElements(std::span<const float> from, const DeviceMemory& to, Stream& stream);
  void CopyFloats(std::span<const float> from, const DeviceMemory& to, Stream& stream);

  CudaDevice& device_;
  const ElementType type_;
  LayerWeightsView weights_;
  DeviceMemory gate_, gate_bias_, correction_bias_, unrounded_;
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
  DeviceExpertGradients view() const;
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
