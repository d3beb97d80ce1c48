// What group operations take on a simulated cluster, worked out by hand; and who has the turn when.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "executor/sim/rank_turns.h"
#include "executor/sim/sim_world.h"
#include "tests/executor/in_child.h"
#include "tests/executor/sim_cluster.h"
#include "tests/executor/sim_layer.h"

namespace moeplan::executor {
namespace {

using testing::InChild;
using testing::SmallCluster;

constexpr double kMs = 1e-3, kUs = 1e-6;
constexpr size_t kMb = 1'000'000;

// What a rank of four runs an operation with.
struct OnStream {
  int rank;
  Communicator& world;
  Communicator& node;  // Ranks 0 and 1, or 2 and 3.
  std::span<std::byte> memory, more;
  Stream& stream;
};

// When it ends on each rank.
std::vector<double> EndsOf(const SimulatedCluster& cluster, const std::function<void(const OnStream&)>& queue) {
  return InChild([&] {
    std::vector<double> ends(4);
    const Status ran = testing::OnRanks(cluster, /*data=*/false, [&](int rank, Rank& self) {
      Device& device = self.device();
      const auto node = *self.world().Split(rank / 2);
      const DeviceMemory memory = *device.Allocate(8 * kMb), more = *device.Allocate(8 * kMb);
      const auto stream = device.MakeStream("INTER_NODE", StreamPriority::kHigh);
      const auto end = device.MakeEvent();
      queue({rank, self.world(), *node, {memory.data(), memory.bytes()}, {more.data(), more.bytes()}, *stream});
      device.Record(*end, *stream);
      const Status status = device.Synchronize();
      EXPECT_TRUE(status.ok()) << status.message();
      ends[rank] = device.TimeS(*end);
    });
    EXPECT_TRUE(ran.ok()) << ran.message();
    return ends;
  });
}

void ExpectAllEndAt(double time_s, const std::vector<double>& ends) {
  ASSERT_EQ(ends.size(), 4u);
  for (const double end_s : ends) EXPECT_NEAR(end_s, time_s, 1e-9);
}

// The ring 0-1-2-3-0 has latencies of 5, 13, 5 and 13 µs, of which a chunk passes all but one of 5; its slowest links
// are the interfaces, of 4 GB/s.
constexpr double kRingLatencyS = 31 * kUs, kLaunchS = 2 * kUs;

TEST(SimCollectivesTest, GathersGoAroundTheRing) {
  // 3 MB over each link.
  ExpectAllEndAt(kLaunchS + kRingLatencyS + 0.75 * kMs, EndsOf(SmallCluster(), [](const OnStream& on) {
                   on.world.AllGather(on.memory.first(kMb), on.more.first(4 * kMb), on.stream);
                 }));
  ExpectAllEndAt(kLaunchS + kRingLatencyS + 0.75 * kMs, EndsOf(SmallCluster(), [](const OnStream& on) {
                   on.world.ReduceScatter(on.more.first(4 * kMb), on.memory.first(kMb), ElementType::kBfloat16,
                                          on.stream);
                 }));
  // 1 MB each way over a bus that carries both: 5 GB/s each.
  ExpectAllEndAt(kLaunchS + 5 * kUs + 0.2 * kMs, EndsOf(SmallCluster(), [](const OnStream& on) {
                   on.node.AllGather(on.memory.first(kMb), on.more.first(2 * kMb), on.stream);
                 }));
}

TEST(SimCollectivesTest, AnAllReduceGoesAroundTwice) {
  ExpectAllEndAt(kLaunchS + 2 * (kRingLatencyS + 0.75 * kMs), EndsOf(SmallCluster(), [](const OnStream& on) {
                   on.world.AllReduce(on.memory.first(4 * kMb), on.more.first(4 * kMb), ElementType::kFloat32,
                                      on.stream);
                 }));
}

TEST(SimCollectivesTest, ABarrierTakesTheLogarithmOfItsRanksInLatencies) {
  ExpectAllEndAt(kLaunchS + 2 * 13 * kUs,
                 EndsOf(SmallCluster(), [](const OnStream& on) { on.world.Barrier(on.stream); }));
}

PeerRows BlocksOf(std::span<std::byte> memory) {
  return {.data = memory.data(), .row_bytes = kMb, .cells = {.blocks = 4, .cells_per_block = 1, .rows_per_cell = 1}};
}

TEST(SimCollectivesTest, AnAllToAllSendsAllAtOnce) {
  // By each interface 4 blocks of 1 MB; the two of each bus are through before.
  ExpectAllEndAt(kLaunchS + 13 * kUs + 1 * kMs, EndsOf(SmallCluster(), [](const OnStream& on) {
                   on.world.AllToAll(BlocksOf(on.memory), BlocksOf(on.more), on.stream);
                 }));
}

TEST(SimCollectivesTest, GathersOfSaaRunBesideItsAllToAllButForTheLast) {
  SimulatedCluster cluster = SmallCluster();
  cluster.nic.bytes_per_s = 1e11;
  // Each way of a bus carries 4 blocks to the other node and 2 inside, and beside these 2 sums of 1 MB: the other 2 are
  // gathered behind them. The bus is busy from 5 µs on.
  const double exchange_s = kLaunchS + 5 * kUs + 8 * kMb / 1e10, gather_s = kLaunchS + 5 * kUs + 2 * kMb / 1e10;
  ExpectAllEndAt(exchange_s + gather_s, EndsOf(cluster, [](const OnStream& on) {
                   on.world.AllToAllAllGather(BlocksOf(on.memory), BlocksOf(on.more.first(4 * kMb)), /*shards=*/2,
                                              on.more.last(4 * kMb), ElementType::kBfloat16, on.node, on.stream);
                 }));
}

TEST(RankTurnsTest, WhoStepsBackInWaitsForTheOthers) {
  RankTurns turns(2);
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> order;
  const auto note = [&](int rank) {
    const std::lock_guard lock(mutex);
    order.push_back(rank);
    changed.notify_all();
  };
  const auto life = [&](int rank) {
    turns.Begin(rank);
    turns.Outside(rank, [&] {
      if (rank == 1) return;
      // Leaves rank 1 the time to go first, if it could.
      std::unique_lock lock(mutex);
      changed.wait_for(lock, std::chrono::milliseconds(100), [&] { return !order.empty(); });
    });
    note(rank);
    turns.End(rank);
  };
  std::thread first(life, 0), second(life, 1);
  turns.Conduct({.next = [] { return false; }, .fail_all = [](const auto&) {}});
  first.join();
  second.join();
  EXPECT_EQ(order, (std::vector{0, 1}));
}

}  // namespace
}  // namespace moeplan::executor
