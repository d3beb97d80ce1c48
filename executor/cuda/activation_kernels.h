// What stands between the matrices of experts, over rows that hold the values before it: of each row the columns of
// "up", and for SwiGLU behind them those of "gate_up" (executor/kernels.h: Expert), as kernels on a CUDA stream.
//
// All pointers are device memory that must live until the stream has passed. In float, rounded once on the way out.
#pragma once

#include <cuda_runtime_api.h>

#include "executor/cuda/placed_rows.h"
#include "models/status.h"
#include "models/workload/expert.h"

namespace moeplan::executor::cuda {

struct ActivationRows {
  ElementType type = ElementType::kFloat32;
  int hidden = 0;      // Columns of "up".
  bool gated = false;  // SwiGLU rather than GELU.
  SwiGluLimit limit;   // Where there is one, SwiGLU is that of GPT-OSS, of limited values; rows keep others.
  // The cells that count, each with the expert of the shard that it is for, as pairs (from: cell, to: expert).
  PlacedRows rows;  // Whose data are the values before the nonlinearity.
  const CellPair* cells = nullptr;
  int count = 0;

  int kept_columns() const { return gated ? 2 * hidden : hidden; }
};

// [experts of the shard][hidden] each; null where experts have no bias, gate_up also where it is not gated.
struct ActivationBiases {
  const float* up = nullptr;
  const float* gate_up = nullptr;
};

// Adds the biases, if any, to the rows in place, and writes f of them to rows of `hidden` columns in the same cells.
Status Activate(const ActivationRows& args, const ActivationBiases& biases, std::byte* out, cudaStream_t stream);

// The gradients of the rows, to `in_gradient` in their shape, from that of f of them. May overwrite the rows
// themselves.
Status ActivationGradient(const ActivationRows& args, const std::byte* out_gradient, std::byte* in_gradient,
                          cudaStream_t stream);

}  // namespace moeplan::executor::cuda
