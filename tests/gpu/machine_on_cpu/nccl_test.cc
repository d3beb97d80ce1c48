// What goes wrong between cards is found by who waits, in time, and leaves no communicator behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

#include <cuda_runtime_api.h>
#include "executor/cuda/cuda_communicator.h"
#include "executor/cuda/nccl_exchange.h"
#include "executor/host/host_stream.h"
#include "models/text.h"
#include "tests/executor/fake_ras.h"

namespace moeplan::executor::cuda {
namespace {

using ::testing::HasSubstr;

double NowS() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// A rank with a device of its own; nobody tells others of an abort.
struct NcclRank {
  NcclRank(int rank, int size, const ShareBytes& share, const NcclOptions& options)
      : rank(rank), device(*MakeCudaDevice({})) {
    auto made = MakeNcclExchange(rank, size, share, *device, options);
    status = made.status();
    if (made.ok()) world = MakeCudaCommunicator(*std::move(made), *device);
    memory = *device->Allocate(64 * size);
  }

  void QueueGather(const std::string& task) {
    device->Label(*stream, task);
    world->AllGather({memory.data() + 64 * rank, 64}, {memory.data(), memory.bytes()}, *stream);
  }

  const int rank;
  const std::unique_ptr<CudaDevice> device;
  Status status;
  DeviceMemory memory;
  std::unique_ptr<Stream> stream = device->MakeStream("INTER_NODE", StreamPriority::kHigh);
  std::unique_ptr<Communicator> world;  // Ends before its device and what it moves.
};

class NcclTest : public ::testing::Test {
 protected:
  void TearDown() override {
    on_cpu::BreakNccl(ncclSuccess);
    EXPECT_EQ(on_cpu::Communicators(), 0);
  }

  void Run(int ranks, const NcclOptions& options, const std::function<void(NcclRank&)>& body) {
    std::latch all_done(ranks), id_made(1);
    std::vector<std::byte> id;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const ShareBytes share = [&](std::vector<std::byte> own) -> StatusOr<std::vector<std::byte>> {
          if (rank == 0) {
            id = std::move(own);
            id_made.count_down();
          }
          id_made.wait();
          return id;
        };
        NcclRank one(rank, ranks, share, options);
        body(one);
        all_done.arrive_and_wait();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_F(NcclTest, APeerThatDoesNotComeIsNamedWithTaskAndBytesWithinTheDeadline) {
  Run(3, {.deadline_s = 0.3}, [](NcclRank& rank) {
    if (rank.rank == 1) return;
    rank.QueueGather("dispatch");
    const double begin_s = NowS();
    const Status status = rank.device->Synchronize();
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_THAT(status.message(), HasSubstr(rank.rank == 0 ? "rank 1 or 2 did not" : "rank 0 or 1 did not"));
    EXPECT_THAT(status.message(), HasSubstr("task dispatch, 64 bytes"));
    EXPECT_GE(NowS() - begin_s, 0.29);
    // Spent: later work answers the same at once.
    rank.QueueGather("combine");
    EXPECT_EQ(rank.device->Synchronize(), status);
  });
}

TEST_F(NcclTest, ErrorsTellWhatTheRasServiceKnows) {
  const testing::FakeRas ras(
      [](int client, const std::string&) { testing::FakeRas::Send(client, testing::kRasStatus); });
  Run(2, {.deadline_s = 0.3, .ras_address = ras.address()}, [](NcclRank& rank) {
    if (rank.rank == 1) return;
    rank.QueueGather("dispatch");
    const Status status = rank.device->Synchronize();
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_THAT(status.message(), HasSubstr("the communicator was aborted; NCCL's RAS service says: #0-0"));
    EXPECT_THAT(status.message(), HasSubstr("Rank 3 -- GPU 1"));
  });
}

TEST_F(NcclTest, WhatComesBeforeAnOperationIsNotItsTime) {
  // 3 times 0.3 s on each of two ranks, one after the other.
  Run(2, {.deadline_s = 1}, [](NcclRank& rank) {
    for (int i = 0; i < 3; ++i) {
      HostStream::Of(*rank.stream).Enqueue([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        return OkStatus();
      });
      rank.QueueGather("dispatch");
    }
    const Status status = rank.device->Synchronize();
    EXPECT_TRUE(status.ok()) << status.message();
  });
}

TEST_F(NcclTest, RecordingsThatAreGoneLeaveNoEventsBehind) {
  Run(2, {.deadline_s = 20}, [](NcclRank& rank) {
    const auto record = [&] {
      const auto recording = rank.device->Capture([&] { rank.QueueGather("dispatch"); });
      recording->Enqueue();
      EXPECT_TRUE(rank.device->Synchronize().ok());
      rank.QueueGather("behind it");  // Which nothing repeats.
      EXPECT_TRUE(rank.device->Synchronize().ok());
    };
    record();
    const int events = on_cpu::Events();
    for (int i = 0; i < 30; ++i) record();
    EXPECT_LT(on_cpu::Events(), events + 20);  // The other rank has some, too, at any time.
  });
}

TEST_F(NcclTest, AnOperationOfAReplayHasADeadlineToo) {
  Run(2, {.deadline_s = 1}, [](NcclRank& rank) {
    const auto recording = rank.device->Capture([&] { rank.QueueGather("dispatch"); });
    const int launches = on_cpu::Launches();
    for (int i = 0; i < 3; ++i) {
      recording->Enqueue();
      EXPECT_TRUE(rank.device->Synchronize().ok());
    }
    EXPECT_GE(on_cpu::Launches() - launches, 3);
    if (rank.rank == 0) return;
    recording->Enqueue();
    const Status status = rank.device->Synchronize();
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_THAT(status.message(), HasSubstr("rank 0 did not answer within 1 s: task dispatch, 64 bytes from rank 1"));
  });
}

TEST_F(NcclTest, AGraphThatIsStuckIsReportedInTimeThoughItLives) {
  Run(2, {.deadline_s = 0.3}, [](NcclRank& rank) {
    if (rank.rank == 0) return;
    const auto recording = rank.device->Capture([&] { rank.QueueGather("dispatch"); });
    recording->Enqueue();
    const double begin_s = NowS();
    EXPECT_EQ(rank.device->Synchronize().code(), StatusCode::kDeadlineExceeded);
    EXPECT_LT(NowS() - begin_s, 5);
  });
}

TEST_F(NcclTest, AGraphOrAStreamThatIsStuckMayBeDestroyedBeforeAnyoneHasWaited) {
  Run(2, {.deadline_s = 0.3}, [](NcclRank& rank) {
    if (rank.rank == 0) return;
    const double begin_s = NowS();
    auto recording = rank.device->Capture([&] { rank.QueueGather("dispatch"); });
    recording->Enqueue();
    recording.reset();
    rank.stream.reset();
    EXPECT_LT(NowS() - begin_s, 5);
    EXPECT_EQ(rank.device->Synchronize().code(), StatusCode::kDeadlineExceeded);
  });
}

TEST_F(NcclTest, AllCommunicatorsOfADeviceAreAbortedAtOnce) {
  Run(2, {.deadline_s = 0.5}, [](NcclRank& rank) {
    const auto group = rank.world->Split(0);
    ASSERT_TRUE(group.ok());
    // As the ranks of a job do.
    rank.device->OnFailure([world = rank.world.get()](const Status& why) { world->Abort(why); });
    if (rank.rank == 0) return;
    const std::unique_ptr<Stream> other = rank.device->MakeStream("INTRA_NODE", StreamPriority::kHigh);
    rank.device->Label(*other, "gather");
    (*group)->AllGather({rank.memory.data() + 64, 64}, {rank.memory.data(), 128}, *other);
    rank.QueueGather("dispatch");
    const double begin_s = NowS();
    EXPECT_EQ(rank.device->Synchronize().code(), StatusCode::kDeadlineExceeded);
    EXPECT_LT(NowS() - begin_s, 5);
  });
}

TEST_F(NcclTest, AsynchronousErrorsOfNcclAreOurs) {
  std::latch broken(2);
  Run(2, {.deadline_s = 20}, [&](NcclRank& rank) {
    rank.QueueGather("dispatch");
    EXPECT_TRUE(rank.device->Synchronize().ok());
    broken.arrive_and_wait();
    on_cpu::BreakNccl(ncclRemoteError);
    rank.QueueGather("combine");
    const Status status = rank.device->Synchronize();
    EXPECT_EQ(status.code(), StatusCode::kPeerLost);
    EXPECT_THAT(status.message(), HasSubstr(StrCat("rank ", 1 - rank.rank, " is lost (NCCL: remote process exited")));
    EXPECT_THAT(status.message(), HasSubstr("task combine, 64 bytes"));
  });
}

TEST_F(NcclTest, ConnectingToAPeerThatDoesNotComeEndsInTime) {
  const auto alone = [](std::vector<std::byte> own) -> StatusOr<std::vector<std::byte>> { return own; };
  const NcclRank rank(0, 2, alone, {.deadline_s = 0.1});
  EXPECT_EQ(rank.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(rank.status.message(), HasSubstr("rank 1 did not answer within 0.1 s: task connect"));
}

TEST_F(NcclTest, ACommunicatorThatNeverConnectedIsNotWaitedForAgain) {
  const auto alone = [](std::vector<std::byte> own) -> StatusOr<std::vector<std::byte>> { return own; };
  const double begin_s = NowS();
  const NcclRank rank(0, 2, alone, {.deadline_s = 2});
  EXPECT_EQ(rank.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_LT(NowS() - begin_s, 3.5) << "connecting took its 2 s, and ending 2 more";
}

TEST_F(NcclTest, GroupsThatAreSplitOffKeepTheLimitOfCtas) {
  Run(2, {.deadline_s = 20, .max_ctas = 6}, [](NcclRank& rank) {
    EXPECT_EQ(on_cpu::MaxCtas(), 6);
    const auto group = rank.world->Split(0);
    ASSERT_TRUE(group.ok());
    EXPECT_EQ(on_cpu::MaxCtas(), 6);
  });
}

TEST_F(NcclTest, AGroupMayHaveALimitOfItsOwn) {
  Run(2, {.deadline_s = 20}, [](NcclRank& rank) {
    EXPECT_TRUE(rank.world->LimitsCtas());
    const auto group = rank.world->SplitLimited(0, 4);
    ASSERT_TRUE(group.ok());
    EXPECT_EQ(on_cpu::MaxCtas(), 4);
    ASSERT_TRUE((*group)->Split(0).ok());
    EXPECT_EQ(on_cpu::MaxCtas(), 4);
    ASSERT_TRUE(rank.world->Split(0).ok());
    EXPECT_NE(on_cpu::MaxCtas(), 4);
  });
}

TEST_F(NcclTest, MemoryIsRegisteredUntilItsHandleGoes) {
  Run(1, {.deadline_s = 20}, [](NcclRank& rank) {
    StatusOr<DeviceMemory> memory = rank.device->Allocate(64);
    ASSERT_TRUE(memory.ok());
    std::shared_ptr<void> handle = rank.world->Register({memory->data(), memory->bytes()});
    EXPECT_NE(handle, nullptr);
    EXPECT_EQ(on_cpu::Registrations(), 1);
    handle = nullptr;
    EXPECT_EQ(on_cpu::Registrations(), 0);
    EXPECT_EQ(rank.world->Register({}), nullptr) << "nothing to register";
  });
}

TEST_F(NcclTest, TheCardAndNcclHaveFoundWhatTheyNeedInTheEnvironment) {
  Run(1, {.deadline_s = 20}, [](NcclRank&) {});
  EXPECT_EQ(on_cpu::LaunchOrder(), "1");
  EXPECT_EQ(on_cpu::Connections(), "32");
}

TEST_F(NcclTest, WhatTheEnvironmentSaysStays) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
  unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  ASSERT_TRUE(MakeCudaDevice({}).ok());
  EXPECT_EQ(on_cpu::FromEnvironment("CUDA_DEVICE_MAX_CONNECTIONS"), "1");
  EXPECT_EQ(on_cpu::FromEnvironment("NCCL_LAUNCH_ORDER_IMPLICIT"), "1");
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
}

TEST_F(NcclTest, ColorsMayBeAnyNumbers) {
  Run(3, {.deadline_s = 20}, [](NcclRank& rank) {
    const auto group = rank.world->Split(rank.rank == 1 ? -7 : 1 << 30);
    ASSERT_TRUE(group.ok());
    EXPECT_EQ((*group)->size(), rank.rank == 1 ? 1 : 2);
    EXPECT_EQ((*group)->rank(), rank.rank == 2 ? 1 : 0);
  });
}

}  // namespace
}  // namespace moeplan::executor::cuda
