// The part of CUDA's driver that executor/cuda/ asks the runtime for, on the CPU (cuda_runtime_api.h).
#pragma once

#include "tests/gpu/machine_on_cpu/cuda_runtime_api.h"

using CUdeviceptr = unsigned long long;
enum CUresult { CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE };
inline constexpr unsigned CU_STREAM_WAIT_VALUE_GEQ = 0;

CUresult cuStreamWaitValue32(cudaStream_t stream, CUdeviceptr number, unsigned value, unsigned flags);
