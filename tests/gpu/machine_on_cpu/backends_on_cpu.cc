// The backends of a card, and of NCCL, which wants a card for each rank, on the CPU.
#include <condition_variable>

#include "executor/cuda/nccl_exchange.h"
#include "tests/gpu/cuda_runner.h"

namespace moeplan::testing {
namespace {

// What NCCL and the ranks' abort lines need to find each other.
class Meeting {
 public:
  explicit Meeting(int ranks) : lines_(ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      auto line = executor::AbortLine::Listen(rank, ranks, "127.0.0.1");
      if (!line.ok()) throw std::runtime_error(line.status().message());
      lines_[rank] = *std::move(line);
      addresses_.push_back(lines_[rank]->address());
    }
  }

  executor::AbortLine& Line(int rank) {
    const Status connected = lines_[rank]->Connect(addresses_, std::chrono::seconds(10));
    if (!connected.ok()) throw std::runtime_error(connected.message());
    return *lines_[rank];
  }

  std::vector<std::byte> Share(int rank, std::vector<std::byte> own) {
    std::unique_lock lock(mutex_);
    if (rank == 0) shared_ = std::move(own);
    changed_.notify_all();
    changed_.wait(lock, [this] { return !shared_.empty(); });
    return shared_;
  }

 private:
  std::vector<std::unique_ptr<executor::AbortLine>> lines_;
  std::vector<std::string> addresses_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::byte> shared_;
};

std::unique_ptr<JobRunner> MakeNcclRunner() {
  return std::make_unique<CudaRunner>([](int ranks) -> ConnectRank {
    const auto meeting = std::make_shared<Meeting>(ranks);
    return [=](int rank, executor::cuda::CudaDevice& device) {
      const auto share = [=](std::vector<std::byte> own) -> StatusOr<std::vector<std::byte>> {
        return meeting->Share(rank, std::move(own));
      };
      return executor::cuda::MakeNcclExchange(rank, ranks, share, device,
                                              {.deadline_s = kCudaDeadlineS, .aborts = &meeting->Line(rank)});
    };
  });
}

}  // namespace

std::vector<Backend> Backends() {
  return {{"cuda", [](uint64_t) { return MakeSharedCardRunner(); }, /*stops_at_once=*/false},
          {"staged", [](uint64_t) { return MakeStagedRunner(/*meets=*/false); }, /*stops_at_once=*/false},
          {"nccl", [](uint64_t) { return MakeNcclRunner(); }, /*stops_at_once=*/false}};
}

}  // namespace moeplan::testing
