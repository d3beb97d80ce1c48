// MOEPLAN_HD marks what host and CUDA code share: __host__ __device__ under nvcc, nothing elsewhere.
#pragma once

#ifdef __CUDACC__
#define MOEPLAN_HD __host__ __device__
#else
#define MOEPLAN_HD
#endif
