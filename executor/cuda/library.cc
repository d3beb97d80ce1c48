// The functions of libmoeplan_cuda.so that executor/backends.cc looks for.
#include "executor/cuda/cuda_backend.h"

extern "C" {
extern const char* const moeplan_library_version;
const char* const moeplan_library_version = MOEPLAN_VERSION;

const moeplan::executor::RankBackend* moeplan_cuda_backend() { return &moeplan::executor::cuda::CudaBackend(); }
}
