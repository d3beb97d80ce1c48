// Runs a program on ranks that are threads with a CUDA device each, on one card, in memory that the host reads, too.
#pragma once

#include <latch>
#include <memory_resource>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>

#include "executor/cuda/cuda_rank.h"
#include "tests/executor/job_runner.h"

namespace moeplan::testing {

// Made at once: tests fill buffers in host functions of streams, which must call no CUDA.
class PinnedMemory final : public std::pmr::memory_resource {
  static void* Slab() {
    void* memory = nullptr;
    if (cudaHostAlloc(&memory, kBytes, cudaHostAllocPortable) != cudaSuccess) throw std::bad_alloc();
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

// How each rank of a job of some size is connected with the others; called on the rank's thread.
using ConnectRank = std::function<StatusOr<std::unique_ptr<executor::cuda::PartExchange>>(
    int rank, executor::cuda::CudaDevice& device)>;

class CudaRunner final : public JobRunner {
 public:
  // Called once for each job.
  explicit CudaRunner(std::function<ConnectRank(int ranks)> connect) : connect_(std::move(connect)) {}

  void Run(int ranks, const Program& program) override {
    static PinnedMemory pinned;
    std::pmr::set_default_resource(&pinned);
    const ConnectRank connect = connect_(ranks);
    std::latch connected(ranks);  // Else what fails at once can fail those who still connect.
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto made =
            executor::cuda::MakeCudaRank({.memory = executor::cuda::MemoryKind::kPinned},
                                         [&](executor::cuda::CudaDevice& device) { return connect(rank, device); });
        if (!made.ok()) throw std::runtime_error(made.status().message());
        connected.arrive_and_wait();
        RunRounds({rank, (*made)->device(), (*made)->world(), (*made)->runtime().make_kernels()}, program);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  const std::function<ConnectRank(int ranks)> connect_;
};

inline constexpr double kCudaDeadlineS = 20;

// Over the in-process communicator.
std::unique_ptr<JobRunner> MakeSharedCardRunner();
// Through memory of the host; `meets`: as ranks of one process have to on a real card (StagedOptions).
std::unique_ptr<JobRunner> MakeStagedRunner(bool meets);

}  // namespace moeplan::testing
