// The streams of a rank wait for each other as Join and Fork say, whichever is slowest.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "executor/host/host_device.h"
#include "executor/host/host_stream.h"
#include "executor/runtime/graph_runner.h"

namespace moeplan::executor {
namespace {

constexpr StreamKind kOthers[] = {StreamKind::kIntraNode, StreamKind::kInterNode, StreamKind::kCopy};

void WorkOn(Stream& stream, std::function<void()> work) {
  HostStream::Of(stream).Enqueue([work = std::move(work)] {
    work();
    return OkStatus();
  });
}

void TakeLong() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

TEST(RankStreamsTest, JoinHoldsTheComputeStreamForTheSlowestOther) {
  const std::unique_ptr<HostDevice> device = MakeHostDevice();
  RankStreams streams(*device);
  for (const StreamKind slowest : kOthers) {
    std::atomic<int> done = 0;
    int done_at_join = -1;
    for (const StreamKind kind : kOthers) {
      WorkOn(streams[kind], [&, kind] {
        if (kind == slowest) TakeLong();
        ++done;
      });
    }
    streams.Join();
    WorkOn(streams[StreamKind::kCompute], [&] { done_at_join = done; });
    ASSERT_TRUE(device->Synchronize().ok());
    EXPECT_EQ(done_at_join, 3) << Name(slowest);
  }
}

TEST(RankStreamsTest, DataParallelTrafficStaysWhereTheDeviceHasNoPriorityForIt) {
  const std::unique_ptr<HostDevice> device = MakeHostDevice();
  RankStreams streams(*device);
  for (const StreamKind kind : kOthers) EXPECT_EQ(&streams.ForData(kind), &streams[kind]) << Name(kind);
}

TEST(RankStreamsTest, ForkHoldsTheOthersForTheComputeStream) {
  const std::unique_ptr<HostDevice> device = MakeHostDevice();
  RankStreams streams(*device);
  std::atomic<bool> done = false;
  std::array<bool, kStreamKinds> seen{};
  WorkOn(streams[StreamKind::kCompute], [&] {
    TakeLong();
    done = true;
  });
  streams.Fork();
  for (const StreamKind kind : kOthers) WorkOn(streams[kind], [&, kind] { seen[static_cast<size_t>(kind)] = done; });
  ASSERT_TRUE(device->Synchronize().ok());
  for (const StreamKind kind : kOthers) EXPECT_TRUE(seen[static_cast<size_t>(kind)]) << Name(kind);
}

}  // namespace
}  // namespace moeplan::executor
