// Transfers and kernels on simulated clusters, against times worked out by hand.
#include "executor/sim/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/executor/in_child.h"
#include "tests/executor/sim_cluster.h"
#include "tests/test_seed.h"

namespace moeplan::executor {
namespace {

using ::testing::ElementsAre;
using testing::InChild;
using testing::SmallCluster;

constexpr double kMs = 1e-3, kUs = 1e-6;

auto Near(double time_s) { return ::testing::DoubleNear(time_s, 1e-9); }

std::unique_ptr<Network> MakeNetwork(const SimulatedCluster& cluster, const NetworkOptions& options = {}) {
  auto network = Network::Make(cluster, options);
  EXPECT_TRUE(network.ok()) << network.status().message();
  return *std::move(network);
}

void Play(Network& network) {
  while (network.PlayNext()) {
  }
}

// When each of transfers that begin together has arrived.
std::vector<double> Arrivals(const SimulatedCluster& cluster, const std::vector<Traffic>& transfers) {
  return InChild([&] {
    const auto network = MakeNetwork(cluster);
    std::vector<double> arrivals(transfers.size());
    for (size_t i = 0; i < transfers.size(); ++i) {
      network->Exchange({&transfers[i], 1}, std::nullopt, [&, i] { arrivals[i] = network->now_s(); });
    }
    Play(*network);
    return arrivals;
  });
}

// When all of them have, as one operation.
double EndOf(const SimulatedCluster& cluster, const std::vector<Traffic>& transfers, const NetworkOptions& options) {
  return InChild([&] {
    const auto network = MakeNetwork(cluster, options);
    double end_s = -1;
    network->Exchange(transfers, std::nullopt, [&] { end_s = network->now_s(); });
    Play(*network);
    return std::vector{end_s};
  })[0];
}

std::vector<Traffic> AllToAll(int gpus, const std::function<double()>& bytes) {
  std::vector<Traffic> transfers;
  for (int from = 0; from < gpus; ++from) {
    for (int to = 0; to < gpus; ++to) {
      if (from != to) transfers.push_back({from, to, bytes()});
    }
  }
  return transfers;
}

TEST(SimNetworkTest, ATransferTakesItsLatencyAndItsBytesOverTheSlowestLink) {
  // Inside a node 10 MB at 10 GB/s after 5 µs; to another at 4 GB/s after 5 + 3 + 5 µs.
  EXPECT_THAT(Arrivals(SmallCluster(), {{0, 1, 1e7}}), ElementsAre(Near(1 * kMs + 5 * kUs)));
  EXPECT_THAT(Arrivals(SmallCluster(), {{0, 2, 1e7}}), ElementsAre(Near(2.5 * kMs + 13 * kUs)));
  EXPECT_THAT(Arrivals(SmallCluster(), {{0, 2, 0}}), ElementsAre(Near(13 * kUs)));
  // A copy reads and writes the memory: 20 MB at 1 TB/s.
  EXPECT_THAT(Arrivals(SmallCluster(), {{0, 0, 1e7}}), ElementsAre(Near(0.02 * kMs)));
}

TEST(SimNetworkTest, TransfersShareALinkEvenlyUntilOneIsThrough) {
  // Both leave by node 0's interface: 2 GB/s each for 5 ms; then the longer one has 10 MB left at 4 GB/s.
  EXPECT_THAT(Arrivals(SmallCluster(), {{0, 2, 1e7}, {1, 3, 2e7}}),
              ElementsAre(Near(5 * kMs + 13 * kUs), Near(7.5 * kMs + 13 * kUs)));
}

TEST(SimNetworkTest, LinksAreFullDuplex) {
  EXPECT_THAT(Arrivals(SmallCluster(), {{0, 2, 1e7}, {2, 0, 1e7}}),
              ElementsAre(Near(2.5 * kMs + 13 * kUs), Near(2.5 * kMs + 13 * kUs)));
  EXPECT_THAT(Arrivals(SmallCluster(), {{0, 1, 1e7}, {1, 0, 1e7}}),
              ElementsAre(Near(2 * kMs + 5 * kUs), Near(2 * kMs + 5 * kUs)));  // But all take the bus up and down.
}

TEST(SimNetworkTest, TrafficToTheInterfaceTakesTheSharedBus) {
  SimulatedCluster cluster = SmallCluster();
  cluster.gpu_link.latency_s = cluster.nic.latency_s = 0;
  // The interface holds the one to 4 GB/s, the other has the 6 GB/s of the bus that are left.
  EXPECT_THAT(Arrivals(cluster, {{0, 2, 4e7}, {1, 0, 1.2e7}}), ElementsAre(Near(10 * kMs), Near(2 * kMs)));
  cluster.gpu_link.kind = GpuLinkKind::kSwitched;
  EXPECT_THAT(Arrivals(cluster, {{0, 2, 4e7}, {1, 0, 1.2e7}}), ElementsAre(Near(10 * kMs), Near(1.2 * kMs)));
}

TEST(SimNetworkTest, SwitchedPortsAndMeshedPairsAreSharedByNobodyElse) {
  SimulatedCluster cluster = SmallCluster();
  cluster.gpus_per_node = 4;
  cluster.gpu_link.latency_s = 0;
  const std::vector<Traffic> transfers = {{0, 1, 1e7}, {0, 2, 1e7}, {3, 2, 1e7}};
  // The port of 0 is shared on the way out, that of 2 on the way in: 5 GB/s each.
  cluster.gpu_link.kind = GpuLinkKind::kSwitched;
  EXPECT_THAT(Arrivals(cluster, transfers), ElementsAre(Near(2 * kMs), Near(2 * kMs), Near(2 * kMs)));
  cluster.gpu_link.kind = GpuLinkKind::kMesh;
  EXPECT_THAT(Arrivals(cluster, transfers), ElementsAre(Near(1 * kMs), Near(1 * kMs), Near(1 * kMs)));
  // No latency of a bus on the way to the interface: 3 µs.
  EXPECT_THAT(Arrivals(cluster, {{0, 4, 4e6}}), ElementsAre(Near(1 * kMs + 3 * kUs)));
}

TEST(SimNetworkTest, InterfacesServeRunsOfGpus) {
  SimulatedCluster cluster = SmallCluster();
  cluster.gpus_per_node = 4;
  cluster.gpu_link = {GpuLinkKind::kSwitched, 1e11, 0};
  cluster.nic.latency_s = 0;
  const std::vector<Traffic> transfers = {{0, 4, 4e6}, {1, 5, 4e6}, {2, 6, 4e6}, {3, 7, 4e6}};
  const auto all_take = [](double time_s) {
    return ElementsAre(Near(time_s), Near(time_s), Near(time_s), Near(time_s));
  };
  EXPECT_THAT(Arrivals(cluster, transfers), all_take(4 * kMs));  // One of 4 GB/s for all.
  cluster.nic.per_node = 2;
  EXPECT_THAT(Arrivals(cluster, transfers), all_take(2 * kMs));
  // 0 and 1 share one, 2 has the other for itself.
  EXPECT_THAT(Arrivals(cluster, {transfers[0], transfers[1], transfers[2]}),
              ElementsAre(Near(2 * kMs), Near(2 * kMs), Near(1 * kMs)));
  cluster.nic.per_node = 8;  // Two for each GPU.
  EXPECT_THAT(Arrivals(cluster, transfers), all_take(0.5 * kMs));
  cluster.nic.per_gpu = true;
  EXPECT_THAT(Arrivals(cluster, transfers), all_take(1 * kMs));
}

TEST(SimNetworkTest, AnOversubscribedLeafSendsLessUpThanItsInterfaces) {
  SimulatedCluster cluster = SmallCluster();
  cluster.nodes = 4;
  cluster.leaf_switch = {.nodes_per_leaf = 2, .oversubscription = 2, .latency_s = 7 * kUs};
  // Two interfaces of 4 GB/s send up 4 GB/s together.
  EXPECT_THAT(Arrivals(cluster, {{0, 4, 1e7}, {2, 6, 1e7}}),
              ElementsAre(Near(5 * kMs + 20 * kUs), Near(5 * kMs + 20 * kUs)));
  EXPECT_THAT(Arrivals(cluster, {{0, 2, 1e7}, {2, 0, 1e7}}),
              ElementsAre(Near(2.5 * kMs + 13 * kUs), Near(2.5 * kMs + 13 * kUs)));
}

TEST(SimNetworkTest, KernelsShareProcessorAndMemory) {
  const std::vector<double> ends = InChild([] {
    const auto network = MakeNetwork(SmallCluster());
    std::vector<double> ends(4);
    const auto work = [&](int index, int gpu, const GpuWork& asked) {
      network->Work(gpu, asked, [&, index] { ends[index] = network->now_s(); });
    };
    // Alone, the first would take 1 ms, the second 2 ms of memory (1 TB/s).
    work(0, 0, {.compute_s = 1 * kMs, .memory_bytes = 1e3});
    work(1, 0, {.compute_s = 0.1 * kMs, .memory_bytes = 2e9});
    work(2, 0, {.memory_bytes = 2e9});
    work(3, 1, {.memory_bytes = 2e9});  // Another GPU.
    Play(*network);
    return ends;
  });
  // Processor: the two share it until the second has had its 0.1 ms, after 0.2 ms. Memory: two share it for 4 ms.
  EXPECT_THAT(ends, ElementsAre(Near(1.1 * kMs), ::testing::DoubleNear(4 * kMs, 1e-7),
                                ::testing::DoubleNear(4 * kMs, 1e-7), Near(2 * kMs)));
}

TEST(SimNetworkTest, TransfersShareTheMemoryOfTheirGpus) {
  SimulatedCluster cluster = SmallCluster();
  cluster.gpu.memory_bytes_per_s = 1.2e10;
  cluster.gpu_link.latency_s = 0;
  const std::vector<double> ends = InChild([&] {
    const auto network = MakeNetwork(cluster);
    std::vector<double> ends(2);
    const Traffic traffic = {0, 1, 6e6};
    network->Exchange({&traffic, 1}, std::nullopt, [&] { ends[0] = network->now_s(); });
    network->Work(1, {.memory_bytes = 1.8e7}, [&] { ends[1] = network->now_s(); });
    Play(*network);
    return ends;
  });
  // 6 GB/s each for 1 ms; then the kernel has 12 MB left at 12 GB/s.
  EXPECT_THAT(ends, ElementsAre(Near(1 * kMs), Near(2 * kMs)));
}

// On 8 nodes of 4, of every kind.
std::vector<SimulatedCluster> ClustersOf32() {
  std::vector<SimulatedCluster> clusters;
  for (const GpuLinkKind kind : {GpuLinkKind::kSharedBus, GpuLinkKind::kSwitched, GpuLinkKind::kMesh}) {
    for (const bool per_gpu : {false, true}) {
      SimulatedCluster cluster = SmallCluster();
      cluster.nodes = 8;
      cluster.gpus_per_node = 4;
      cluster.gpu_link.kind = kind;
      cluster.nic.per_gpu = per_gpu;
      cluster.leaf_switch = {.nodes_per_leaf = 4, .oversubscription = 2};
      clusters.push_back(cluster);
    }
  }
  return clusters;
}

TEST(SimNetworkTest, SumsOfEndsAreExactWhereAllExchangeTheSame) {
  for (const SimulatedCluster& cluster : ClustersOf32()) {
    const std::vector<Traffic> transfers = AllToAll(32, [] { return 1e6; });
    const double exact_s = EndOf(cluster, transfers, {.exact_transfers = 1000});
    EXPECT_NEAR(EndOf(cluster, transfers, {.exact_transfers = 0}), exact_s, 1e-6 * exact_s)
        << Name(cluster.gpu_link.kind);
  }
}

// Groups of every fourth GPU, all at once.
std::vector<double> EndsOfSiblings(const SimulatedCluster& cluster, const std::vector<Traffic>& transfers,
                                   const NetworkOptions& options) {
  return InChild([&] {
    const auto network = MakeNetwork(cluster, options);
    std::vector<double> ends_s(4);
    for (int group = 0; group < 4; ++group) {
      std::vector<Traffic> of_group;
      for (const Traffic& one : transfers) of_group.push_back({4 * one.from + group, 4 * one.to + group, one.bytes});
      network->Exchange(of_group, std::nullopt, [&, group] { ends_s[group] = network->now_s(); });
    }
    Play(*network);
    return ends_s;
  });
}

TEST(SimNetworkTest, SiblingsThatAllExchangeTheSameAreExactInSums) {
  for (const SimulatedCluster& cluster : ClustersOf32()) {
    SCOPED_TRACE(Name(cluster.gpu_link.kind));
    const std::vector<Traffic> transfers = AllToAll(8, [] { return 1e6; });
    const std::vector<double> exact_s = EndsOfSiblings(cluster, transfers, {.exact_transfers_of_all = 1000});
    const std::vector<double> sums_s = EndsOfSiblings(cluster, transfers, {.exact_transfers_of_all = 0});
    for (int group = 0; group < 4; ++group) EXPECT_NEAR(sums_s[group], exact_s[group], 1e-6 * exact_s[group]);
  }
}

// Sums of what differs are not exact: who sends no longer waits for who receives.
TEST(SimNetworkTest, SiblingsOfUnequalTransfersAreNoSums) {
  double bytes = 0;
  const std::vector<Traffic> transfers = AllToAll(8, [&] { return bytes += 1e5; });
  for (const SimulatedCluster& cluster : ClustersOf32()) {
    SCOPED_TRACE(std::string(Name(cluster.gpu_link.kind)));
    const auto exact_s = EndsOfSiblings(cluster, transfers, {.exact_transfers_of_all = 1000});
    EXPECT_EQ(EndsOfSiblings(cluster, transfers, {.exact_transfers_of_all = 0}), exact_s);
    if (cluster.gpu_link.kind != GpuLinkKind::kSharedBus) continue;  // Elsewhere one interface decides, in sums too.
    EXPECT_NE(EndsOfSiblings(cluster, transfers, {.exact_transfers = 0}), exact_s);
  }
}

// Routers send uneven amounts: here each transfer has 0.5 to 1.5 times the mean.
TEST(SimNetworkTest, SumsOfEndsAreWithin2PercentWhereSizesDiffer) {
  std::mt19937_64 random(TestSeed());
  for (const SimulatedCluster& cluster : ClustersOf32()) {
    const std::vector<Traffic> transfers =
        AllToAll(32, [&] { return std::uniform_real_distribution(0.5e6, 1.5e6)(random); });
    const double exact_s = EndOf(cluster, transfers, {.exact_transfers = 1000});
    const double sums_s = EndOf(cluster, transfers, {.exact_transfers = 0});
    SCOPED_TRACE(Name(cluster.gpu_link.kind));
    EXPECT_NEAR(sums_s, exact_s, 0.02 * exact_s);
  }
}

TEST(SimNetworkTest, NoiseDiffersFromRunToRunAndIsTheSameForASeed) {
  SimulatedCluster cluster = SmallCluster();
  cluster.noise = {.compute_sigma = 0.1, .transfer_sigma = 0.2, .stragglers = {{.gpu = 1, .slowdown = 3}}, .seed = 7};
  const auto times = [&] {
    return InChild([&] {
      const auto network = MakeNetwork(cluster);
      std::vector<double> times;
      for (int i = 0; i < 6; ++i) {
        const double begin_s = network->now_s();
        const Traffic traffic = {0, 1, 1e7};
        const Agenda::Action done = [&] { times.push_back(network->now_s() - begin_s); };
        if (i < 2) network->Exchange({&traffic, 1}, std::nullopt, done);
        if (i >= 2) network->Work(i % 2, {.compute_s = 1 * kMs}, done);
        Play(*network);
      }
      return times;
    });
  };
  const std::vector<double> first = times(), second = times();
  EXPECT_EQ(first, second);
  EXPECT_NE(first[0], first[1]);
  EXPECT_NE(first[2], first[4]);
  // Five standard deviations.
  for (const int gpu : {0, 1}) {
    for (const int i : {2, 4}) EXPECT_LT(std::abs(std::log(first[i + gpu] / (gpu == 1 ? 3 : 1) / kMs)), 0.5);
  }
  cluster.noise.seed = 8;
  EXPECT_NE(times(), first);
}

TEST(SimNetworkTest, AProcessHasOneCluster) {
  InChild([] {
    const auto first = MakeNetwork(SmallCluster());
    const auto second = Network::Make(SmallCluster());
    EXPECT_EQ(second.status().code(), StatusCode::kUnavailable) << second.status().message();
    return std::vector<double>();
  });
}

TEST(SimNetworkTest, TheClockGoesOnWithAndWithoutTransfers) {
  const std::vector<double> times = InChild([] {
    const auto network = MakeNetwork(SmallCluster());
    std::vector<double> times;
    const auto note = [&] { times.push_back(network->now_s()); };
    network->After(4 * kMs, [&] {
      note();
      const Traffic traffic = {0, 1, 1e7};
      network->Exchange({&traffic, 1}, 0, note);
      network->After(0.5 * kMs, note);  // While it is under way.
      network->After(2 * kMs, note);
    });
    Play(*network);
    return times;
  });
  EXPECT_THAT(times, ElementsAre(Near(4 * kMs), Near(4.5 * kMs), Near(5 * kMs), Near(6 * kMs)));
}

}  // namespace
}  // namespace moeplan::executor
