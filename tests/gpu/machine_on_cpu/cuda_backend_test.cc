// How rank processes become ranks with cards; here they are threads, with cards that the CPU plays.
#include "executor/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <thread>

namespace moeplan::executor::cuda {
namespace {

using ::testing::HasSubstr;

struct Found {
  std::string error;
  bool limits_ctas = false;  // As NCCL alone does.
  std::string exchange;
  std::vector<float> sums;
};

// Each rank adds up rank + 1 over all of them.
void RunRank(int rank, int ranks, std::vector<std::string>& addresses, std::latch& joined, Found& found) {
  const auto join = CudaBackend().Join(
      {.rank = rank, .ranks = ranks, .ranks_per_node = ranks, .host_address = "127.0.0.1", .deadline_s = 20});
  if (join.ok()) addresses[rank] = (*join)->address();
  joined.arrive_and_wait();
  if (!join.ok()) {
    found.error = join.status().message();
    return;
  }
  const auto connected = (*join)->Connect(addresses);
  if (!connected.ok()) {
    found.error = connected.status().message();
    return;
  }
  Rank& self = **connected;
  found.limits_ctas = self.world().LimitsCtas();
  found.exchange = self.facts()["exchange"];
  Stream& stream = self.runtime().streams()[StreamKind::kInterNode];
  const std::vector<float> own(4, static_cast<float>(rank + 1));
  found.sums.resize(own.size());
  const size_t bytes = own.size() * sizeof(float);
  const auto send = self.device().Allocate(bytes), recv = self.device().Allocate(bytes);
  self.device().Copy(send->data(), reinterpret_cast<const std::byte*>(own.data()), bytes, stream);
  self.world().AllReduce({send->data(), bytes}, {recv->data(), bytes}, ElementType::kFloat32, stream);
  self.device().Copy(reinterpret_cast<std::byte*>(found.sums.data()), recv->data(), bytes, stream);
  Status status = self.CoolCaches();
  if (status.ok()) status = self.SettleClocks();
  if (status.ok()) status = self.device().Synchronize();
  found.error = status.message();
}

std::vector<Found> RunRanks(int ranks, int cards) {
  on_cpu::SetCards(cards);
  std::vector<std::string> addresses(ranks);
  std::latch joined(ranks);
  std::vector<Found> found(ranks);
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] { RunRank(rank, ranks, addresses, joined, found[rank]); });
    }
  }
  on_cpu::SetCards(1);
  return found;
}

TEST(CudaBackendTest, RanksWithCardsOfTheirOwnMeetOverNccl) {
  for (const Found& found : RunRanks(/*ranks=*/3, /*cards=*/3)) {
    EXPECT_EQ(found.error, "");
    EXPECT_TRUE(found.limits_ctas);
    EXPECT_EQ(found.exchange, "NCCL 2.28.3");
    EXPECT_EQ(found.sums, std::vector<float>(4, 6));
  }
}

TEST(CudaBackendTest, RanksThatShareACardMeetOverTheirHosts) {
  for (const Found& found : RunRanks(/*ranks=*/3, /*cards=*/2)) {
    EXPECT_EQ(found.error, "");
    EXPECT_FALSE(found.limits_ctas);
    EXPECT_EQ(found.exchange, "Gloo through pinned memory");
    EXPECT_EQ(found.sums, std::vector<float>(4, 6));
  }
}

TEST(CudaBackendTest, WithoutACardTheHostBackendIsNamed) {
  EXPECT_THAT(RunRanks(/*ranks=*/1, /*cards=*/0)[0].error, HasSubstr("use the host backend"));
}

TEST(CudaBackendTest, SamplesSayWhichCardTheyAreOf) {
  const RankPlace place = {.rank = 0, .ranks = 1, .ranks_per_node = 1, .host_address = "127.0.0.1"};
  EXPECT_NE(CudaBackend().FactsAt(place)["device"], "");
  EXPECT_THAT(CudaBackend().FactsAt(place)["gemm"], HasSubstr("cuBLAS"));
}

TEST(CudaBackendTest, RanksThatShareACardShareItsMemory) {
  RankPlace place = {.rank = 0, .ranks = 3, .ranks_per_node = 1, .host_address = "127.0.0.1"};
  const double whole_bytes = CudaBackend().DeviceMemoryBytesAt(place);
  EXPECT_GT(whole_bytes, 0);
  place.ranks_per_node = 3;
  EXPECT_EQ(CudaBackend().DeviceMemoryBytesAt(place), whole_bytes / 3);
}

}  // namespace
}  // namespace moeplan::executor::cuda
