// Layers on simulated clusters: their timelines by hand, what they cost without data, and what stops them.
#include "executor/sim/sim_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "models/text.h"
#include "tests/executor/in_child.h"
#include "tests/executor/sim_cluster.h"
#include "tests/executor/sim_layer.h"

namespace moeplan::executor {
namespace {

using ::testing::HasSubstr;
using testing::InChild;
using testing::SimLayer;
using testing::SmallCluster;

constexpr double kUs = 1e-6;

Cluster ClusterOf(const SimulatedCluster& cluster) {
  return {.nodes = cluster.nodes, .gpus_per_node = cluster.gpus_per_node};
}

SimulatedCluster OneNode() {
  SimulatedCluster cluster = SmallCluster();
  cluster.nodes = 1;
  return cluster;
}

// Two experts on two ranks, 1,024 tokens of 512 elements on each, 512 slots for each expert and rank.
Workload SmallWorkload(const SimulatedCluster& cluster, Phase phase = Phase::kForward) {
  const Workload workload = {.layer = {.batch = 1,
                                       .sequence_length = 1024,
                                       .model_dim = 512,
                                       .hidden_dim = 1024,
                                       .experts = Gpus(cluster),
                                       .top_k = 1,
                                       .capacity_factor = 1},
                             .layout = {.expert_parallel = Gpus(cluster)},
                             .min_chunk_bytes = 1,
                             .phase = phase};
  const auto resolved = ResolveWorkload(workload, ClusterOf(cluster));
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  return *resolved;
}

struct Ran {
  Status status;
  std::vector<Timeline> timelines;  // By rank.
  std::vector<RouterStatistics> statistics;
};

Ran RunOn(const SimulatedCluster& cluster, const SimLayer& layer) {
  const auto network = Network::Make(cluster);
  const auto world = SimWorld::Make(**network, {.data = layer.data});
  Ran ran;
  ran.timelines.resize(Gpus(cluster));
  ran.statistics.resize(Gpus(cluster));
  ran.status = testing::RunLayer(**world, layer, ClusterOf(cluster), [&](int rank, Device&, GraphRunner& runner) {
    ran.timelines[rank] = runner.LastTimeline(layer.workload.phase);
    ran.statistics[rank] = *runner.router_statistics();
  });
  EXPECT_TRUE(ran.status.ok()) << ran.status.message();
  return ran;
}

// Start and end of each task of each rank, one after the other.
std::vector<double> TimesOf(const std::vector<Timeline>& timelines) {
  std::vector<double> times;
  for (const Timeline& timeline : timelines) {
    for (const TaskTiming& task : timeline) times.insert(times.end(), {task.start_s, task.end_s});
  }
  return times;
}

TEST(SimWorldTest, RanksRepeatTheirTimesWhereThereIsNoNoise) {
  const auto repeats = [](const SimulatedNoise& noise) {
    SimulatedCluster cluster = SmallCluster();
    cluster.noise = noise;
    return InChild([&] {
      const auto network = Network::Make(cluster);
      const auto world = SimWorld::Make(**network, {.data = false});
      const auto join = (*world)->backend().Join({.rank = 0, .ranks = Gpus(cluster)});
      return std::vector<double>{(*(*join)->Connect({}))->repeats_times() ? 1.0 : 0.0};
    })[0];
  };
  EXPECT_EQ(repeats({}), 1);
  EXPECT_EQ(repeats({.stragglers = {{.gpu = 1, .slowdown = 3}}}), 1);
  EXPECT_EQ(repeats({.compute_sigma = 0.1}), 0);
  EXPECT_EQ(repeats({.transfer_sigma = 0.1}), 0);
}

TEST(SimWorldTest, ALayersTimelineIsTheOneWorkedOutByHand) {
  const SimulatedCluster cluster = OneNode();
  const SimLayer layer = {.workload = SmallWorkload(cluster), .knobs = {.family = Family::kPipeline}};
  InChild([&] {
    const Ran ran = RunOn(cluster, layer);
    // 10 Tflop/s of which large GEMMs reach half, 1 TB/s, launches of 2 µs.
    const auto gemm_s = [](double m, double n, double k) {
      return 2 * m * n * k / (1e13 * 0.5 * (m / (m + 128)) * (n / (n + 128)) * (k / (k + 128)));
    };
    std::map<TaskKind, double> times_s;
    // Two launches; its compute is longer than reading 1 MB.
    times_s[TaskKind::kGate] = 4 * kUs + gemm_s(1024, 2, 512);
    // Reads and writes 1,024 rows of 1,024 bytes, with one launch.
    times_s[TaskKind::kPermute] = 2 * kUs + 2 * 1048576 / 1e12;
    // Half of them to the other GPU: up and down the bus of 10 GB/s beside as many that come back.
    times_s[TaskKind::kAllToAll] = 2 * kUs + 5 * kUs + 524288 / 5e9;
    times_s[TaskKind::kExpert] = 4 * kUs + gemm_s(1024, 1024, 512) + gemm_s(1024, 512, 1024);
    // 1,024 rows read, 1,024 written, and 12 bytes for each pair.
    times_s[TaskKind::kCombine] = 2 * kUs + (2 * 1048576 + 12 * 1024) / 1e12;
    for (const Timeline& timeline : ran.timelines) {
      double now_s = 0;
      EXPECT_EQ(timeline.size(), 6u);
      for (const TaskTiming& task : timeline) {
        EXPECT_EQ(times_s.count(task.kind), 1u) << task.task;
        EXPECT_NEAR(task.start_s, now_s, 1e-9) << task.task;
        now_s += times_s[task.kind];
        EXPECT_NEAR(task.end_s, now_s, 1e-9) << task.task;
      }
    }
    return std::vector<double>();
  });
}

TEST(SimWorldTest, RegularLayersTakeTheSameTimeWithDataAndWithout) {
  const SimulatedCluster cluster = SmallCluster();
  for (const Family family : {Family::kPipeline, Family::kBaseline}) {
    const auto times = [&](bool data) {
      return InChild([&] {
        const SimLayer layer = {.workload = SmallWorkload(cluster, Phase::kTraining),
                                .knobs = {.family = family, .partition_degree = family == Family::kPipeline ? 2 : 1},
                                .data = data};
        return TimesOf(RunOn(cluster, layer).timelines);
      });
    };
    const std::vector<double> with = times(true), without = times(false);
    EXPECT_FALSE(with.empty());
    EXPECT_EQ(with, without);
  }
}

// Counts reach every rank though rows do not.
TEST(SimWorldTest, WithoutDataRoutingIsBalancedAndItsCountsAreSent) {
  SimulatedCluster cluster = SmallCluster();
  for (const AllToAllAlgorithm algorithm : {AllToAllAlgorithm::kDirect, AllToAllAlgorithm::kHier2d}) {
    InChild([&] {
      Workload workload = SmallWorkload(cluster);
      workload.layout = {.tensor_parallel = 2, .expert_parallel = 4, .data_parallel = 2};
      const SimLayer layer = {.workload = workload, .knobs = {.family = Family::kParmS1, .all_to_all = algorithm}};
      const Ran ran = RunOn(cluster, layer);
      for (int rank = 0; rank < 4; ++rank) {
        // 512 tokens of a slice to 4 experts.
        EXPECT_EQ(ran.statistics[rank].tokens, 512);
        EXPECT_THAT(ran.statistics[rank].pairs, ::testing::Each(128));
        EXPECT_THAT(ran.statistics[rank].kept, ::testing::Each(128));
        for (const TaskTiming& task : ran.timelines[rank]) {
          // 128 rows from each of 4 ranks: no row would take the launches alone, 4 µs.
          if (task.kind != TaskKind::kExpert) continue;
          EXPECT_GT(task.end_s - task.start_s, 50 * kUs);
        }
      }
      return std::vector<double>();
    });
  }
}

TEST(SimWorldTest, ARunTakesTheSameTimesAgain) {
  const SimulatedCluster cluster = SmallCluster();
  const SimLayer layer = {.workload = SmallWorkload(cluster, Phase::kTraining),
                          .knobs = {.family = Family::kPipeline, .partition_degree = 4}};
  const auto times = [&] { return InChild([&] { return TimesOf(RunOn(cluster, layer).timelines); }); };
  const std::vector<double> first = times();
  EXPECT_GT(first.size(), 50u);
  EXPECT_EQ(times(), first);
}

void OnRanks(const SimulatedCluster& cluster, bool data, const std::function<void(int, Rank&)>& program) {
  const Status ran = testing::OnRanks(cluster, data, program);
  EXPECT_TRUE(ran.ok()) << ran.message();
}

TEST(SimWorldTest, MemoryCostsNothingUntilTouchedAndHasAnEnd) {
  InChild([] {
    SimulatedCluster cluster = SmallCluster();
    cluster.gpu.device_memory_bytes = 8e11;
    OnRanks(cluster, /*data=*/false, [](int rank, Rank& self) {
      auto first = self.device().Allocate(700'000'000'000);
      EXPECT_TRUE(first.ok()) << first.status().message();
      const auto second = self.device().Allocate(200'000'000'000);
      EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
      EXPECT_THAT(second.status().message(), HasSubstr(StrCat("GPU ", rank, " was asked for 200000000000 bytes")));
      *first = DeviceMemory();
      EXPECT_TRUE(self.device().Allocate(200'000'000'000).ok());
    });
    return std::vector<double>();
  });
}

TEST(SimWorldTest, ACollectiveThatARankNeverJoinsIsADeadlock) {
  InChild([] {
    OnRanks(SmallCluster(), /*data=*/true, [](int rank, Rank& self) {
      if (rank == 2) return;
      const auto stream = self.device().MakeStream("COMPUTE", StreamPriority::kNormal);
      self.device().Label(*stream, "meet");
      self.world().Barrier(*stream);
      const Status status = self.device().Synchronize();
      EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
      EXPECT_THAT(status.message(),
                  HasSubstr(StrCat("rank ", rank, ", stream COMPUTE, task meet waits for barrier with rank 2")));
    });
    return std::vector<double>();
  });
}

TEST(SimWorldTest, ASplitThatARankNeverMakesIsADeadlock) {
  InChild([] {
    OnRanks(SmallCluster(), /*data=*/true, [](int rank, Rank& self) {
      if (rank == 1) return;
      const auto half = self.world().Split(rank / 2);
      EXPECT_EQ(half.status().code(), StatusCode::kDeadlineExceeded);
      EXPECT_THAT(half.status().message(), HasSubstr("rank 0 waits for a group that not every rank has split for"));
    });
    return std::vector<double>();
  });
}

TEST(SimWorldTest, SplitBlocksUntilTheGroupIsThere) {
  InChild([] {
    OnRanks(SmallCluster(), /*data=*/true, [](int rank, Rank& self) {
      const auto half = self.world().Split(rank / 2);
      EXPECT_TRUE(half.ok()) << half.status().message();
      EXPECT_EQ((*half)->size(), 2);
      EXPECT_EQ((*half)->rank(), rank % 2);
    });
    return std::vector<double>();
  });
}

TEST(SimWorldTest, AJobThatFailedIsJoinedAnew) {
  InChild([] {
    const auto network = Network::Make(SmallCluster());
    const auto world = SimWorld::Make(**network, {});
    const Status ran = (*world)->Run([&](int rank) {
      for (const bool fails : {true, false}) {
        const auto join = (*world)->backend().Join({.rank = rank, .ranks = 4});
        const auto self = *(*join)->Connect({});
        if (fails && rank == 3) self->Fail(InternalError("broken"));
        const auto stream = self->device().MakeStream("COMPUTE", StreamPriority::kNormal);
        self->world().Barrier(*stream);
        EXPECT_EQ(self->device().Synchronize().ok(), !fails) << "rank " << rank;
      }
    });
    EXPECT_TRUE(ran.ok()) << ran.message();
    return std::vector<double>();
  });
}

TEST(SimWorldTest, MoreRanksThanGpusAreRefused) {
  InChild([] {
    const auto network = Network::Make(SmallCluster());
    EXPECT_THAT(SimWorld::Make(**network, {.ranks = 5}).status().message(),
                HasSubstr("ranks: found 5, expected at most 4"));
    return std::vector<double>();
  });
}

}  // namespace
}  // namespace moeplan::executor
