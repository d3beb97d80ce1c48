#include "executor/cuda/environment.h"

#include <cstdlib>

namespace moeplan::executor::cuda {

void PrepareEnvironment() {
  // They fail only where there is no memory left, which more important calls will report.
  (void)setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
  (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
}

}  // namespace moeplan::executor::cuda
