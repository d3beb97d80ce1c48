// How kernels are started and find their dynamic shared memory: the two things of CUDA's that are no C++, so that the
// same sources compile for tests that run every thread of a kernel on the CPU (tests/gpu/on_cpu/).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace moeplan::executor::cuda {

struct Grid {
  dim3 blocks;
  int threads = 1;
  size_t shared_bytes = 0;
};

template <typename... Parameters, typename... Arguments>
void Start(void (*kernel)(Parameters...), const Grid& grid, cudaStream_t stream, const Arguments&... arguments) {
#ifdef __CUDACC__
  kernel<<<grid.blocks, grid.threads, grid.shared_bytes, stream>>>(arguments...);
#else
  on_cpu::Launch([=] { on_cpu::Run(grid.blocks, grid.threads, grid.shared_bytes, [&] { kernel(arguments...); }); },
                 stream);
#endif
}

#ifdef __CUDACC__
// Aligned to 16 bytes.
__device__ inline std::byte* DynamicSharedMemory() {
  extern __shared__ int4 moeplan_shared_memory[];
  return reinterpret_cast<std::byte*>(moeplan_shared_memory);
}
#else
inline std::byte* DynamicSharedMemory() { return on_cpu::DynamicSharedMemory(); }
#endif

}  // namespace moeplan::executor::cuda
