// Memory of the host that a card reads and writes itself.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>

#include "executor/cuda/machine_errors.h"
#include "executor/device.h"

namespace moeplan::executor::cuda {

// Not set to zero. May wait for the card, there as where it is freed.
inline StatusOr<DeviceMemory> AllocatePinned(size_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaHostAlloc(&data, std::max<size_t>(bytes, 1), cudaHostAllocPortable);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return error::NoPinnedMemory(bytes, cudaGetErrorString(error));
  }
  return DeviceMemory(static_cast<std::byte*>(data), bytes, [](std::byte* gone) { cudaFreeHost(gone); });
}

}  // namespace moeplan::executor::cuda
