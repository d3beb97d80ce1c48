// The part of CUDA that our kernels and their tests use, on the CPU: found in place of the toolkit's header of this
// name, it lets the sources of executor/cuda/ compile as C++ (kernels_on_cpu.h).
//
// All device memory is host memory, and a stream has finished what was queued on it. One thread of the host at a time.
#pragma once

#include <new>

#include "tests/gpu/on_cpu/kernels_on_cpu.h"

using cudaStream_t = struct CudaStreamOnCpu*;
enum cudaError_t { cudaSuccess, cudaErrorMemoryAllocation };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };

inline const char* cudaGetErrorName(cudaError_t error) { return error == cudaSuccess ? "cudaSuccess" : "cudaError"; }
inline const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMalloc(void** memory, size_t bytes) {
  // Aligned as a card's memory is, exactly as long as asked for, so that a memory checker sees what goes beyond.
  constexpr size_t kAlignment = 256;
  *memory = ::operator new (bytes, std::align_val_t{kAlignment});
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* memory) {
  ::operator delete (memory, std::align_val_t{256});
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

namespace moeplan::on_cpu {
// What a library or a kernel queues on a stream.
inline cudaError_t Launch(const std::function<void()>& work, cudaStream_t) {
  work();
  return cudaSuccess;
}
}  // namespace moeplan::on_cpu
