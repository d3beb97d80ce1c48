// A plan of the C interface as the executor's, and the memory that it names as views.
#pragma once

#include <string>

#include "executor/c/moeplan.h"
#include "executor/device.h"
#include "executor/layer/device_weights.h"
#include "executor/moe_layer.h"

namespace moeplan::executor {

// kInvalidInput, naming the field, for a name that the contract does not have, and for lists of a negative length.
StatusOr<LayerPlan> LayerPlanOf(const moeplan_plan& plan);

// The memory as views of the shapes that `layer` and `shard` give; kInvalidInput, naming the tensor, where one is
// missing or too many.
StatusOr<LayerWeightsView> ViewOf(const moeplan_weights& weights, const Layer& layer, const LayerShard& shard);
StatusOr<LayerGradientsView> ViewOf(const moeplan_gradients& gradients, const Layer& layer, const LayerShard& shard);
// The same of memory of `device`; kInvalidInput, too, where a tensor lies elsewhere.
StatusOr<DeviceWeights> DeviceWeightsOf(const moeplan_weights& weights, const Layer& layer, const LayerShard& shard,
                                        const Device& device);
StatusOr<DeviceGradients> DeviceGradientsOf(const moeplan_gradients& gradients, const Layer& layer,
                                            const LayerShard& shard, const Device& device);
// The gate's, of either memory. `prefix` stands before the names of tensors in errors.
StatusOr<GateGradientsView> GateViewOf(const std::string& prefix, float* weight, float* bias, const Layer& layer);
// kInvalidInput, naming it, where the memory is not the device's.
Status CheckOnDevice(const char* name, const void* memory, const Device& device);

}  // namespace moeplan::executor
