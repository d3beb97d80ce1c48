// The backend that tests of every backend run on in programs of this folder: ranks as threads that share a card, in
// memory that the host reads, too.
#include <gtest/gtest.h>

#include <memory_resource>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>

#include "executor/cuda/cuda_rank.h"
#include "executor/cuda/in_process_exchange.h"
#include "executor/host/host_kernels.h"
#include "tests/executor/job_runner.h"

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

// Made at once: tests fill buffers in host functions of streams, which must call no CUDA.
class ManagedMemory final : public std::pmr::memory_resource {
  static void* Slab() {
    void* memory = nullptr;
    if (cudaMallocManaged(&memory, kBytes, cudaMemAttachGlobal) != cudaSuccess) throw std::bad_alloc();
    return memory;
  }
  void* do_allocate(size_t bytes, size_t alignment) override {
    const std::lock_guard lock(mutex_);
    return pools_.allocate(bytes, alignment);
  }
  void do_deallocate(void* memory, size_t bytes, size_t alignment) override {
    const std::lock_guard lock(mutex_);
    pools_.deallocate(memory, bytes, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  static constexpr size_t kBytes = size_t{16} << 20;
  std::mutex mutex_;
  std::pmr::monotonic_buffer_resource in_slab_{Slab(), kBytes, std::pmr::null_memory_resource()};
  std::pmr::unsynchronized_pool_resource pools_{&in_slab_};
};

class CudaRunner final : public JobRunner {
 public:
  void Run(int ranks, const Program& program) override {
    static ManagedMemory managed;
    std::pmr::set_default_resource(&managed);
    std::vector<std::unique_ptr<Mesh>> meshes = MakeInProcessMeshes(ranks);
    std::vector<std::thread> threads;
    for (std::unique_ptr<Mesh>& mesh : meshes) {
      threads.emplace_back([&program, &mesh] { RunRank(std::move(mesh), program); });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  static void RunRank(std::unique_ptr<Mesh> mesh, const Program& program) {
    constexpr double kDeadlineS = 20;
    const auto connect = [&](cuda::CudaDevice& device) {
      return cuda::MakeInProcessExchange(std::move(mesh), device, kDeadlineS);
    };
    const auto rank = cuda::MakeCudaRank({.memory = cuda::MemoryKind::kManaged}, connect, MakeHostKernels);
    if (!rank.ok()) throw std::runtime_error(rank.status().message());
    RunRounds({(*rank)->world().rank(), (*rank)->device(), (*rank)->world()}, program);
  }
};

}  // namespace

std::vector<Backend> Backends() {
  return {{"cuda", [](uint64_t) -> std::unique_ptr<JobRunner> { return std::make_unique<CudaRunner>(); }}};
}

}  // namespace moeplan::testing
