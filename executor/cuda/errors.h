// What CUDA and cuBLAS say, as a Status.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "models/status.h"
#include "models/text.h"

namespace moeplan::executor::cuda {

inline Status StatusOf(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return OkStatus();
  return InternalError(StrCat(what, ": CUDA says ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")"));
}

// Of the kernels launched since the last call, as far as a launch alone can tell.
inline Status LaunchStatus(const std::string& what) { return StatusOf(cudaGetLastError(), what); }

}  // namespace moeplan::executor::cuda
