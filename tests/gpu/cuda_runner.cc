#include "tests/gpu/cuda_runner.h"

#include <gtest/gtest.h>

#include "executor/cuda/environment.h"
#include "executor/cuda/in_process_exchange.h"
#include "executor/cuda/staged_exchange.h"

namespace moeplan::testing {
namespace {

// Skips everything where there is no card.
class NeedsCard : public ::testing::Environment {
 public:
  void SetUp() override {
    executor::cuda::PrepareEnvironment();
    int cards = 0;
    const cudaError_t error = cudaGetDeviceCount(&cards);
    if (error != cudaSuccess || cards == 0) GTEST_SKIP() << "no GPU here: " << cudaGetErrorString(error);
  }
};
[[maybe_unused]] const auto* const needs_card = ::testing::AddGlobalTestEnvironment(new NeedsCard);

std::shared_ptr<std::vector<std::unique_ptr<executor::Mesh>>> SharedMeshes(int ranks) {
  return std::make_shared<std::vector<std::unique_ptr<executor::Mesh>>>(executor::MakeInProcessMeshes(ranks));
}

}  // namespace

std::unique_ptr<JobRunner> MakeStagedRunner(bool meets) {
  return std::make_unique<CudaRunner>([meets](int ranks) -> ConnectRank {
    const auto meshes = SharedMeshes(ranks), meetings = SharedMeshes(meets ? ranks : 0);
    return [=](int rank, executor::cuda::CudaDevice& device) {
      executor::cuda::StagedOptions options = {.deadline_s = kCudaDeadlineS};
      if (meets) options.meeting = std::move((*meetings)[rank]);
      return executor::cuda::MakeStagedExchange(std::move((*meshes)[rank]), device, std::move(options));
    };
  });
}

std::unique_ptr<JobRunner> MakeSharedCardRunner() {
  return std::make_unique<CudaRunner>([](int ranks) -> ConnectRank {
    const auto meshes = SharedMeshes(ranks);
    return [meshes](int rank, executor::cuda::CudaDevice& device) {
      return executor::cuda::MakeInProcessExchange(std::move((*meshes)[rank]), device, kCudaDeadlineS);
    };
  });
}

}  // namespace moeplan::testing
