// The part of cuBLAS that executor/cuda/ uses, on the CPU: found in place of the toolkit's header of this name. Plain
// loops in double precision, queued on streams, rounded once; pointers are read when the stream gets there.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#define CUBLAS_VER_MAJOR 0
#define CUBLAS_VER_MINOR 0
#define CUBLAS_VER_PATCH 0

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_INVALID_VALUE };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F };
enum cudaDataType_t { CUDA_R_32F, CUDA_R_16BF };

using cublasHandle_t = struct CublasOnCpu*;

const char* cublasGetStatusString(cublasStatus_t status);
cublasStatus_t cublasCreate(cublasHandle_t* handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
// Setting a stream takes the workspace away, as cuBLAS does.
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, size_t bytes);
// Every group has one product.
cublasStatus_t cublasGemmGroupedBatchedEx(cublasHandle_t handle, const cublasOperation_t* first_operations,
                                          const cublasOperation_t* second_operations, const int* m, const int* n,
                                          const int* k, const void* alpha, const void* const* first,
                                          cudaDataType_t first_type, const int* first_strides,
                                          const void* const* second, cudaDataType_t second_type,
                                          const int* second_strides, const void* beta, void* const* result,
                                          cudaDataType_t result_type, const int* result_strides, int groups,
                                          const int* products_of_groups, cublasComputeType_t compute);
