// What executor/backends.cc finds in libmoeplan_cuda.so.
#include "executor/cuda/cuda_backend.h"

extern "C" {
extern const char* const moeplan_library_version;
const char* const moeplan_library_version = MOEPLAN_VERSION;

const moeplan::executor::RankBackend* moeplan_cuda_backend() { return &moeplan::executor::cuda::CudaBackend(); }
}
