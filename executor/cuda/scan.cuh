// Running sums over the kThreads threads of a block.
#pragma once

#include <cuda_runtime_api.h>

#include "executor/cuda/launch.h"

namespace moeplan::executor::cuda {

template <typename Number>
struct RunningSum {
  Number up_to_here;  // The sum of the values of this thread and all before it.
  Number all;         // The sum of all threads' values.
};

// For all threads of a block together; the same order of sums at every call.
template <typename Number>
__device__ RunningSum<Number> SumUpToHere(Number value) {
  constexpr int kWarp = 32, kWarps = kThreads / kWarp;
  __shared__ Number of_warps[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const Number below = __shfl_up_sync(0xffffffff, value, distance);
    if (lane >= distance) value += below;
  }
  __syncthreads();  // The call before has been read.
  if (lane == kWarp - 1) of_warps[warp] = value;
  __syncthreads();
  Number before = 0, all = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    if (i == warp) before = all;
    all += of_warps[i];
  }
  return {before + value, all};
}

}  // namespace moeplan::executor::cuda
