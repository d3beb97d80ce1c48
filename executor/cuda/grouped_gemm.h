// The matrix products of experts: many at once, each with its own number of rows, of which there may be none.
//
// Each batch of them (product_batches.h) is a call of cuBLASLt, one after the other; experts that have as many rows
// each are one batch. cublasGemmGroupedBatchedEx took 1.1 to 2.4 times as long as a call for each on an H100
// (docs/gpu/README.md), and takes lists of sizes from host memory, of which nothing says what becomes in a graph.
//
// Row-major. BF16 or FP32 elements, accumulated in float, never in TF32.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>

#include "executor/cuda/product_batches.h"
#include "models/status.h"

namespace moeplan::executor::cuda {

// One per device, driven by its thread; keeps cuBLASLt's handle, and room for its work on each stream whose products
// have asked for any. May be captured.
class GroupedGemm {
 public:
  static StatusOr<std::unique_ptr<GroupedGemm>> Make();
  virtual ~GroupedGemm() = default;

  // Queues them on the stream. Products without rows, or without an inner dimension, leave their c as it is. `b` may
  // repeat; each c is written by one product alone, but with kTransposedA and `adds`, where they come in their order.
  virtual Status Multiply(const ProductShape& shape, std::span<const Product> products, cudaStream_t stream) = 0;
};

}  // namespace moeplan::executor::cuda
