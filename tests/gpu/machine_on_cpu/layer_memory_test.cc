// Layers take memory of the card when they are made and in their first run, and none after that.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <barrier>

#include "models/schedule/schedules.h"
#include "tests/executor/layer_on_rank.h"
#include "tests/gpu/cuda_runner.h"

namespace moeplan::executor {
namespace {

constexpr int kRanks = 4, kRuns = 12;

testing::Case FourRanks() {
  testing::Case test;
  test.cluster = {.nodes = 1, .gpus_per_node = kRanks};
  test.workload = {.layer = {.batch = 1,
                             .sequence_length = 12,
                             .model_dim = 8,
                             .hidden_dim = 8,
                             .experts = 4,
                             .top_k = 2,
                             .capacity_factor = 1,
                             .bytes_per_element = 2,
                             .expert_matrices = 3,
                             .expert_bias = true,
                             .shared_hidden_dim = 4},
                   .layout = {.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2},
                   .min_chunk_bytes = 1,
                   .max_chunks = 2,
                   .max_partition_degree = 2,
                   .phase = Phase::kTraining};
  test.workload = *ResolveWorkload(test.workload, test.cluster);
  return test;
}

// How much had been allocated behind each run of a graph.
std::vector<int> AllocationsOfRuns(const testing::Case& test, const TaskGraph& graph) {
  std::vector<int> allocations(kRuns);
  std::barrier all_here(kRanks);
  testing::MakeSharedCardRunner()->Run(kRanks, [&](const testing::Rank& rank) {
    const auto layer = std::make_shared<testing::LayerOnRank>(test, rank);
    const std::shared_ptr<GraphRunner> runner = layer->Prepare(graph);
    std::vector<testing::Round> rounds;
    for (int run = 0; run < kRuns; ++run) {
      const auto check = [&, run, is_first = rank.rank == 0, layer](const Status& status) {
        EXPECT_TRUE(status.ok()) << status.message();
        all_here.arrive_and_wait();
        if (is_first) allocations[run] = on_cpu::Allocations();
        all_here.arrive_and_wait();
      };
      rounds.push_back({[runner] { runner->Enqueue(Phase::kTraining); }, check});
    }
    return rounds;
  });
  return allocations;
}

TEST(LayerMemoryTest, LaterRunsAllocateNothing) {
  const testing::Case test = FourRanks();
  for (const Knobs& knobs : testing::AllKnobs(test)) {
    SCOPED_TRACE(testing::Describe(knobs));
    const std::vector<int> allocations = AllocationsOfRuns(test, *BuildSchedule(knobs, test.workload, test.cluster));
    EXPECT_EQ(allocations, std::vector<int>(kRuns, allocations[0]));
  }
}

}  // namespace
}  // namespace moeplan::executor
