// The biases of experts on the rows of their cells, and their gradients, as kernels on a CUDA stream; and the
// weights and gradients of a layer as whole tensors.
//
// All pointers are device memory that must live until the stream has passed. Sums are in float, in one order, the same
// at every call.
#pragma once

#include <cuda_runtime_api.h>

#include "executor/cuda/cell_kernels.h"

namespace moeplan::executor::cuda {

struct BiasRows {
  ElementType type = ElementType::kFloat32;
  int columns = 0;
  int stride = 0;   // Elements from one row to the next.
  PlacedRows rows;  // Whose data begin at the first column.
  // The cells that count, as pairs (from: cell, to: expert of the shard).
  CellGroups experts;
  int count = 0;  // Of the pairs.
};

// Adds to every row the bias of its expert, [experts][columns], rounded once; null: zeros. `overwrites`: to zero rather
// than to what is there.
Status AddBias(const BiasRows& args, const float* biases, bool overwrites, cudaStream_t stream);

// Adds to gradients[experts][columns] `scale` times the sum over the expert's rows.
Status AddBiasGradient(const BiasRows& args, float scale, float* gradients, cudaStream_t stream);

// to[i] += from[i] for `count` values.
Status AddValues(const float* from, int64_t count, float* to, cudaStream_t stream);

// Values to elements, each rounded.
Status StoreElements(ElementType type, const float* values, int64_t count, std::byte* elements, cudaStream_t stream);

}  // namespace moeplan::executor::cuda
