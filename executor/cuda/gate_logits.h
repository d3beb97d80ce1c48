// Gate logits in the order of executor/gate_scores.h, on a CUDA stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "executor/rows.h"

namespace moeplan::executor::cuda {

// logits[rows][experts] of tokens one after the other, with gate_weight[experts][columns] and bias[experts], or null.
void StartLogits(ElementType type, const std::byte* tokens, const float* gate_weight, const float* bias, float* logits,
                 int rows, int experts, int columns, cudaStream_t stream);

}  // namespace moeplan::executor::cuda
