// The matrix products of experts: many at once, each with its own number of rows, of which there may be none.
//
// Each is a call of cuBLASLt, one after the other. cublasGemmGroupedBatchedEx took 1.1 to 2.4 times as long on an H100
// (docs/gpu/README.md), and takes lists of sizes from host memory, of which nothing says what becomes in a graph.
//
// Row-major. BF16 or FP32 elements, accumulated in float, never in TF32.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>

#include "executor/cuda/placed_rows.h"
#include "models/status.h"

namespace moeplan::executor::cuda {

// Of one expert's rows in one cell; device memory.
struct Product {
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  std::byte* c = nullptr;
  int rows = 0;  // Of what the experts share out: see ProductShape.
};

// What all products of a call have in common. `*_stride` counts elements from one row to the next.
struct ProductShape {
  enum class Kind {
    kPlain,        // c[rows][columns] = a[rows][inner] · b[inner][columns]
    kTransposedB,  // c[rows][columns] = a[rows][inner] · bᵀ, b[columns][inner]
    kTransposedA,  // c[inner][columns] = aᵀ · b, a[rows][inner], b[rows][columns]: weight gradients; c is float
  };
  Kind kind = Kind::kPlain;
  ElementType type = ElementType::kFloat32;
  int inner = 0, columns = 0;
  int a_stride = 0, b_stride = 0, c_stride = 0;
  float scale = 1;
  bool adds = false;  // To what is in c.
};

// One per device, driven by its thread; keeps cuBLASLt's handle and room for its work, which all calls share: work of
// several streams must not overlap. May be captured.
class GroupedGemm {
 public:
  static StatusOr<std::unique_ptr<GroupedGemm>> Make();
  virtual ~GroupedGemm() = default;

  // Queues them on the stream, in their order. Products without rows, or without an inner dimension, leave their c as
  // it is. `b` may repeat; each c is written by one product alone, but with kTransposedA and `adds`.
  virtual Status Multiply(const ProductShape& shape, std::span<const Product> products, cudaStream_t stream) = 0;
};

}  // namespace moeplan::executor::cuda
