// NCCL with one rank, which needs one card: connecting, splitting, graphs, and what a rank has to say to itself.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "executor/cuda/cuda_communicator.h"
#include "executor/cuda/nccl_exchange.h"
#include "executor/host/host_stream.h"
#include "models/text.h"

namespace moeplan::executor::cuda {
namespace {

class NcclAloneTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto alone = [](std::vector<std::byte> own) -> StatusOr<std::vector<std::byte>> { return own; };
    auto exchange = MakeNcclExchange(0, 1, alone, *device_, {.deadline_s = 60, .max_ctas = 4});
    ASSERT_TRUE(exchange.ok()) << exchange.status().message();
    world_ = MakeCudaCommunicator(*std::move(exchange), *device_);
  }

  DeviceMemory Upload(const std::vector<float>& values) {
    return *device_->Upload(reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float));
  }
  std::vector<float> Read(const DeviceMemory& memory) {
    std::vector<float> values(memory.bytes() / sizeof(float));
    device_->Copy(reinterpret_cast<std::byte*>(values.data()), memory.data(), memory.bytes(), *stream_);
    const Status status = device_->Synchronize();
    EXPECT_TRUE(status.ok()) << status.message();
    return values;
  }
  static std::span<std::byte> All(const DeviceMemory& memory) { return {memory.data(), memory.bytes()}; }

  const std::unique_ptr<CudaDevice> device_ = *MakeCudaDevice({});
  const std::unique_ptr<Stream> stream_ = device_->MakeStream("INTER_NODE", StreamPriority::kHigh);
  std::unique_ptr<Communicator> world_;
};

TEST_F(NcclAloneTest, EveryCollectiveGivesTheOwnRows) {
  const std::vector<float> values = {1, 2.5F, -3, 4};
  const DeviceMemory from = Upload(values);
  const CellLayout cells = {.blocks = 1, .rows_per_cell = 4};
  using Collective = std::function<void(const DeviceMemory& to)>;
  const Collective collectives[] = {
      [&](const DeviceMemory& to) {
        world_->AllToAll({from.data(), 4, cells}, {to.data(), 4, cells}, *stream_);
      },
      [&](const DeviceMemory& to) { world_->AllGather(All(from), All(to), *stream_); },
      [&](const DeviceMemory& to) { world_->ReduceScatter(All(from), All(to), ElementType::kFloat32, *stream_); },
      [&](const DeviceMemory& to) { world_->AllReduce(All(from), All(to), ElementType::kFloat32, *stream_); },
  };
  for (size_t i = 0; i < std::size(collectives); ++i) {
    const DeviceMemory to = Upload({0, 0, 0, 0});
    device_->Label(*stream_, StrCat("collective ", i));
    collectives[i](to);
    EXPECT_EQ(Read(to), values) << i;
  }
}

TEST_F(NcclAloneTest, AGraphRepeatsACollective) {
  const DeviceMemory from = Upload({1, 2}), to = Upload({0, 0});
  std::vector<float> values = {0, 0};
  const auto recording = device_->Capture([&] {
    device_->Label(*stream_, "gather");
    device_->Copy(from.data(), reinterpret_cast<const std::byte*>(values.data()), from.bytes(), *stream_);
    world_->AllGather(All(from), All(to), *stream_);
  });
  for (int run = 1; run < 4; ++run) {
    values = {static_cast<float>(run), -1};
    recording->Enqueue();
    EXPECT_EQ(Read(to), values);
  }
  EXPECT_EQ(device_->replays(), 3u);
}

// The abort that follows blocks in NCCL until the graph is gone (StartAbort in nccl_exchange.cc).
TEST_F(NcclAloneTest, AnErrorIsReportedWhileAGraphLivesAndAllCanBeDestroyed) {
  const DeviceMemory from = Upload({1, 2}), to = Upload({0, 0});
  const CellLayout cells = {.blocks = 1, .rows_per_cell = 2};
  auto recording = device_->Capture([&] {
    device_->Label(*stream_, "dispatch");
    // So that the graph still runs when the abort begins.
    HostStream::Of(*stream_).Enqueue([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return OkStatus();
    });
    // A kernel of NCCL also where there is one rank, whose all-gather is a mere copy that holds no communicator.
    world_->AllToAll({from.data(), 4, cells}, {to.data(), 4, cells}, *stream_);
  });
  recording->Enqueue();
  EXPECT_EQ(Read(to), (std::vector<float>{1, 2}));
  ASSERT_EQ(device_->replays(), 1u);

  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed_s = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  recording->Enqueue();
  world_->Abort(PeerLost("a test has given up"));
  const Status status = device_->Synchronize();
  EXPECT_EQ(status.code(), StatusCode::kPeerLost) << status.message();
  EXPECT_LT(elapsed_s(), 5);
  recording->Enqueue();  // Spent.
  EXPECT_EQ(device_->Synchronize(), status);
  recording.reset();
  world_.reset();
  EXPECT_LT(elapsed_s(), 8) << "the abort has not ended, though no graph is left";
}

TEST_F(NcclAloneTest, GroupsSplitOffWork) {
  const auto group = world_->Split(5);
  ASSERT_TRUE(group.ok()) << group.status().message();
  const DeviceMemory from = Upload({7}), to = Upload({0});
  device_->Label(*stream_, "gather");
  (*group)->AllGather(All(from), All(to), *stream_);
  EXPECT_EQ(Read(to), std::vector<float>{7});
}

}  // namespace
}  // namespace moeplan::executor::cuda
