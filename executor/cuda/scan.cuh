// Running sums over the kThreads threads of a block.
#pragma once

#include <cuda_runtime_api.h>

#include "executor/cuda/launch.h"

namespace moeplan::executor::cuda {

// The sum of the values of this thread and all before it; sums[kThreads - 1] is that of all, until the block meets
// again. For all threads of a block together.
template <typename Number>
__device__ Number SumUpToHere(Number value, Number* sums) {
  sums[threadIdx.x] = value;
  __syncthreads();
  for (unsigned distance = 1; distance < kThreads; distance *= 2) {
    const Number below = threadIdx.x >= distance ? sums[threadIdx.x - distance] : Number{0};
    __syncthreads();
    sums[threadIdx.x] += below;
    __syncthreads();
  }
  return sums[threadIdx.x];
}

}  // namespace moeplan::executor::cuda
