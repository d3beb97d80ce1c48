// Rows of elements to what travels for them, and back (executor/codec/codec.h), as kernels on a CUDA stream: the same
// codes to the bit, and the same values.
//
// All pointers are device memory that must live until the stream has passed, and begin at a multiple of 4 bytes.
#pragma once

#include <cuda_runtime_api.h>

#include "executor/cuda/placed_rows.h"
#include "models/status.h"
#include "models/workload/codec.h"

namespace moeplan::executor::cuda {

// kUnimplemented for codecs that a program adds, which have host functions alone.
Status CheckCodec(Codec codec);

// All rows of `in` to codes, which lie in the same cells of `out`, and back. Requires a codec that CheckCodec accepts.
Status Encode(Codec codec, const RowShape& shape, const PlacedRows& in, std::byte* out, cudaStream_t stream);
Status Decode(Codec codec, const RowShape& shape, const std::byte* in, const PlacedRows& out, cudaStream_t stream);

}  // namespace moeplan::executor::cuda
