// The weights of a layer and their gradients where they lie in a device's memory, and kernels use them in place.
//
// Shapes are those of layer_weights.h. Pointers are null where the shard or the layer has no such tensor. All memory is
// the job's: it must last as long as work that names it.
#pragma once

#include <cstddef>
#include <variant>

#include "executor/layer/layer_weights.h"

namespace moeplan::executor {

struct DeviceExperts {
  const std::byte *up = nullptr, *gate_up = nullptr, *down = nullptr;  // Elements of the layer.
  const float *up_bias = nullptr, *gate_up_bias = nullptr, *down_bias = nullptr;

  friend bool operator==(const DeviceExperts&, const DeviceExperts&) = default;
};
struct DeviceWeights {
  const float* gate = nullptr;                                   // [E][M]
  const float *gate_bias = nullptr, *correction_bias = nullptr;  // [E]
  DeviceExperts experts, shared;

  friend bool operator==(const DeviceWeights&, const DeviceWeights&) = default;
};

// Weight gradients add to it, in float; or, of matrices that are elements of the layer, those of a backward pass are
// written over what is there, and chunks of it add up in elements.
struct DeviceExpertGradients {
  std::byte *up = nullptr, *gate_up = nullptr, *down = nullptr;
  bool matrices_are_elements = false;
  float *up_bias = nullptr, *gate_up_bias = nullptr, *down_bias = nullptr;

  friend bool operator==(const DeviceExpertGradients&, const DeviceExpertGradients&) = default;
};
struct DeviceGradients {
  DeviceExpertGradients experts, shared;

  friend bool operator==(const DeviceGradients&, const DeviceGradients&) = default;
};

// A job has its weights, and then their gradients, in memory of the host or of the device.
using WeightsMemory = std::variant<LayerWeightsView, DeviceWeights>;
using GradientsMemory = std::variant<LayerGradientsView, DeviceGradients>;

}  // namespace moeplan::executor
