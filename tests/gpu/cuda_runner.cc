#include "tests/gpu/cuda_runner.h"

#include <gtest/gtest.h>

#include "executor/cuda/in_process_exchange.h"

namespace moeplan::testing {
namespace {

// Skips everything where there is no card.
class NeedsCard : public ::testing::Environment {
 public:
  void SetUp() override {
    int cards = 0;
    const cudaError_t error = cudaGetDeviceCount(&cards);
    if (error != cudaSuccess || cards == 0) GTEST_SKIP() << "no GPU here: " << cudaGetErrorString(error);
  }
};
[[maybe_unused]] const auto* const needs_card = ::testing::AddGlobalTestEnvironment(new NeedsCard);

}  // namespace

std::unique_ptr<JobRunner> MakeSharedCardRunner() {
  return std::make_unique<CudaRunner>([](int ranks) -> ConnectRank {
    const auto meshes = std::make_shared<std::vector<std::unique_ptr<Mesh>>>(MakeInProcessMeshes(ranks));
    return [meshes](int rank, cuda::CudaDevice& device) {
      return cuda::MakeInProcessExchange(std::move((*meshes)[rank]), device, kCudaDeadlineS);
    };
  });
}

}  // namespace moeplan::testing
