// Exchanges through memory of the host: what goes wrong between ranks lets every stream go on, and what was taken once
// is used again. The suites of every backend run on them, too (backends_on_cpu.cc).
#include "executor/cuda/staged_exchange.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <thread>

#include "executor/cuda/cuda_communicator.h"
#include "executor/host/host_stream.h"
#include "models/text.h"

namespace moeplan::executor::cuda {
namespace {

using ::testing::HasSubstr;

constexpr size_t kPart = 64;

// A rank with a device of its own; its failure is nobody else's.
struct StagedRank {
  StagedRank(int rank, std::unique_ptr<Mesh> mesh, StagedOptions options)
      : rank(rank), size(mesh->size()), device(*MakeCudaDevice({})) {
    world = MakeCudaCommunicator(*MakeStagedExchange(std::move(mesh), *device, std::move(options)), *device);
    memory = *device->Allocate(kPart * size);
  }

  // Each rank's part becomes its number plus `more`, everywhere.
  void QueueGather(const std::string& task, int more = 1) {
    device->Label(*stream, task);
    std::byte* const own = memory.data() + kPart * rank;
    on_cpu::Launch([=, value = rank + more] { std::memset(own, value, kPart); }, StreamOf(*stream));
    world->AllGather({own, kPart}, {memory.data(), memory.bytes()}, *stream);
  }

  void ExpectGathered(int more = 1) const {
    for (int peer = 0; peer < size; ++peer) {
      for (size_t i = 0; i < kPart; ++i) {
        ASSERT_EQ(memory.data()[kPart * peer + i], static_cast<std::byte>(peer + more)) << "from rank " << peer;
      }
    }
  }

  const int rank, size;
  const std::unique_ptr<CudaDevice> device;
  DeviceMemory memory;
  std::unique_ptr<Stream> stream = device->MakeStream("INTER_NODE", StreamPriority::kHigh);
  std::unique_ptr<Communicator> world;  // Ends before its device and what it moves.
};

struct Meshes {
  explicit Meshes(int ranks) : mesh(MakeInProcessMeshes(ranks)), meeting(MakeInProcessMeshes(ranks)) {}
  std::vector<std::unique_ptr<Mesh>> mesh, meeting;
};

void RunRanks(int ranks, double deadline_s, const std::function<void(StagedRank&)>& body, bool meets = false) {
  Meshes meshes(ranks);
  std::latch all_made(ranks), all_done(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      StagedOptions options = {.deadline_s = deadline_s};
      if (meets) options.meeting = std::move(meshes.meeting[rank]);
      StagedRank one(rank, std::move(meshes.mesh[rank]), std::move(options));
      all_made.arrive_and_wait();
      body(one);
      all_done.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(StagedExchangeTest, APeerThatDoesNotComeIsNamedWithTaskAndBytesAndTheStreamGoesOn) {
  RunRanks(2, /*deadline_s=*/0.3, [](StagedRank& rank) {
    if (rank.rank == 1) return;
    rank.QueueGather("dispatch");
    const Status status = rank.device->Synchronize();
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_EQ(status.message(), "rank 1 did not answer in time: task dispatch, 64 bytes");
    rank.QueueGather("combine");
    EXPECT_EQ(rank.device->Synchronize(), status) << "spent";
  });
}

TEST(StagedExchangeTest, ARankThatFailedBeforeItsStreamCameToAnOperationHoldsNothing) {
  RunRanks(2, /*deadline_s=*/20, [](StagedRank& rank) {
    if (rank.rank == 1) return;
    const auto begin = std::chrono::steady_clock::now();
    std::latch queued(1);
    HostStream::Of(*rank.stream).Enqueue([&] {
      queued.wait();
      return InternalError("broken");
    });
    rank.QueueGather("dispatch");
    rank.QueueGather("combine");
    queued.count_down();
    EXPECT_EQ(rank.device->Synchronize().message(), "broken");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << "waited for rank 1";
  });
}

TEST(StagedExchangeTest, AnAbortOfOneRankIsTheFailureOfAllAndOfGroupsSplitOff) {
  std::latch split(2);
  RunRanks(2, /*deadline_s=*/20, [&](StagedRank& rank) {
    const auto group = rank.world->Split(0);
    ASSERT_TRUE(group.ok()) << group.status().message();
    split.arrive_and_wait();
    if (rank.rank == 1) return rank.world->Abort(InternalError("rank 1 has no luck"));
    rank.device->Label(*rank.stream, "dispatch");
    (*group)->AllGather({rank.memory.data(), kPart}, {rank.memory.data(), 2 * kPart}, *rank.stream);
    EXPECT_THAT(rank.device->Synchronize().message(), HasSubstr("task dispatch: rank 1 has no luck"));
  });
}

TEST(StagedExchangeTest, TheSameExchangeAgainTakesNoMemory) {
  std::latch first_done(3), others_done(3);
  RunRanks(3, /*deadline_s=*/20, [&](StagedRank& rank) {
    rank.QueueGather("dispatch");
    ASSERT_TRUE(rank.device->Synchronize().ok());
    first_done.arrive_and_wait();
    const int before = on_cpu::Allocations();
    for (int run = 2; run < 6; ++run) {
      rank.QueueGather("dispatch", run);
      ASSERT_TRUE(rank.device->Synchronize().ok());
      rank.ExpectGathered(run);
    }
    EXPECT_EQ(on_cpu::Allocations(), before);
    others_done.arrive_and_wait();
  });
}

// Many in a row, which share the pinned memory, and one that needs more of it while they are under way.
TEST(StagedExchangeTest, OperationsThatAreQueuedAheadDoNotMixTheirBytes) {
  RunRanks(3, /*deadline_s=*/20, [](StagedRank& rank) {
    constexpr size_t kLarge = 3000;
    StatusOr<DeviceMemory> large = rank.device->Allocate(3 * kLarge);
    ASSERT_TRUE(large.ok());
    std::byte* const own = large->data() + kLarge * rank.rank;
    for (int run = 1; run < 20; ++run) rank.QueueGather(StrCat("small ", run), run);
    on_cpu::Launch([=, value = rank.rank + 100] { std::memset(own, value, kLarge); }, StreamOf(*rank.stream));
    rank.world->AllGather({own, kLarge}, {large->data(), 3 * kLarge}, *rank.stream);
    for (int run = 20; run < 40; ++run) rank.QueueGather(StrCat("small ", run), run);
    ASSERT_TRUE(rank.device->Synchronize().ok());
    rank.ExpectGathered(39);
    for (size_t i = 0; i < 3 * kLarge; ++i) ASSERT_EQ(large->data()[i], static_cast<std::byte>(100 + i / kLarge)) << i;
  });
}

TEST(StagedExchangeTest, RanksOfOneProcessMayMeet) {
  const auto gather = [](StagedRank& rank) {
    for (int run = 1; run < 4; ++run) rank.QueueGather("dispatch", run);
    ASSERT_TRUE(rank.device->Synchronize().ok());
    rank.ExpectGathered(3);
    ASSERT_TRUE(rank.world->Split(rank.rank % 2).ok());
  };
  RunRanks(3, /*deadline_s=*/20, gather, /*meets=*/true);
  RunRanks(
      2, /*deadline_s=*/0.3,
      [](StagedRank& rank) {
        if (rank.rank == 1) return;
        rank.QueueGather("dispatch");
        EXPECT_THAT(rank.device->Synchronize().message(), HasSubstr("rank 1 did not answer in time: task dispatch"));
      },
      /*meets=*/true);
}

}  // namespace
}  // namespace moeplan::executor::cuda
