// Ranks replay a layer as a graph together, or all of them queue it anew.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "models/schedule/schedules.h"
#include "tests/executor/layer_on_rank.h"
#include "tests/gpu/cuda_runner.h"

namespace moeplan::executor {
namespace {

constexpr int kRanks = 2, kRuns = 2;

testing::Case TwoRanks() {
  testing::Case test;
  test.cluster = {.nodes = 1, .gpus_per_node = kRanks};
  test.workload = {.layer = {.batch = 1,
                             .sequence_length = 12,
                             .model_dim = 8,
                             .hidden_dim = 8,
                             .experts = 4,
                             .top_k = 2,
                             .capacity_factor = 1,
                             .bytes_per_element = 2},
                   .layout = {.expert_parallel = kRanks},
                   .min_chunk_bytes = 1,
                   .phase = Phase::kTraining};
  test.workload = *ResolveWorkload(test.workload, test.cluster);
  return test;
}

// Its graphs go before the communicators that they hold.
struct RunnerOnRank {
  RunnerOnRank(const testing::Case& test, const testing::Rank& rank, const TaskGraph& graph)
      : layer(test, rank), runner(layer.Prepare(graph)) {}

  testing::LayerOnRank layer;
  const std::unique_ptr<GraphRunner> runner;
};

// How many graphs were launched in all runs of all ranks, over NCCL, where CUDA refuses those of rank `refused`.
int LaunchesOf(const std::function<void(GraphRunner&)>& enqueue, int refused) {
  const testing::Case test = TwoRanks();
  Knobs knobs;
  knobs.family = Family::kParmS1;
  const TaskGraph graph = *BuildSchedule(knobs, test.workload, test.cluster);
  const std::vector<testing::Backend> backends = testing::Backends();
  const auto nccl = std::ranges::find(backends, "nccl", &testing::Backend::name);
  const int before = on_cpu::Launches();
  nccl->make_runner(/*seed=*/1)->Run(kRanks, [&](const testing::Rank& rank) {
    if (rank.rank == refused) on_cpu::RefuseGraphs();
    const auto own = std::make_shared<RunnerOnRank>(test, rank, graph);
    const testing::Round round = {[&enqueue, own] { enqueue(*own->runner); },
                                  [](const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }};
    return std::vector<testing::Round>(kRuns, round);
  });
  return on_cpu::Launches() - before;
}

void WholePass(GraphRunner& runner) { runner.Enqueue(Phase::kTraining); }

TEST(GraphsOnAllRanksTest, EveryRankReplaysWhereAllCan) { EXPECT_EQ(LaunchesOf(WholePass, -1), kRanks * kRuns); }

TEST(GraphsOnAllRanksTest, NoRankReplaysWhereOneCannot) { EXPECT_EQ(LaunchesOf(WholePass, 1), 0); }

TEST(GraphsOnAllRanksTest, WeightGradientsAloneAreEachRanksOwnAffair) {
  const auto halves = [](GraphRunner& runner) {
    runner.Enqueue(Phase::kForward);
    runner.Enqueue(BackwardHalf::kInputGradients);
    runner.Enqueue(BackwardHalf::kWeightGradients);
  };
  EXPECT_EQ(LaunchesOf(halves, -1), 3 * kRanks * kRuns);
  EXPECT_EQ(LaunchesOf(halves, 1), kRuns);
}

}  // namespace
}  // namespace moeplan::executor
