// What ranks really send and receive in exact S1 when the gate favours some experts, beside what is priced for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <numeric>

#include "executor/moe_layer.h"
#include "models/routing/expert_load.h"
#include "models/workload/groups.h"
#include "tests/executor/rank_threads.h"

namespace moeplan::executor {
namespace {

constexpr int kRanks = 4;
constexpr uint64_t kSeed = 3;
constexpr Cluster kCluster = {.nodes = 2, .gpus_per_node = 2};

Workload WorkloadOf(double capacity_factor) {
  Workload workload;
  workload.layer = {.batch = 2,
                    .sequence_length = 1024,
                    .model_dim = 16,
                    .hidden_dim = 8,
                    .experts = 8,
                    .top_k = 2,
                    .capacity_factor = capacity_factor,
                    .bytes_per_element = 4};
  workload.layout = {.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2};
  workload.min_chunk_bytes = 1;
  return *ResolveWorkload(workload, kCluster);
}

// Tokens that lean towards the first two experts, so that these get most of the pairs.
std::vector<float> LeaningInput(const Workload& workload, int rank) {
  const Layer& layer = workload.layer;
  const LayerWeights weights = MakeWeights(layer, ShardOf(layer, {}, 0), kSeed);
  std::vector<float> input = MakeInput(layer, workload.layout, rank / workload.layout.tensor_parallel, kSeed);
  for (size_t i = 0; i < input.size(); ++i) {
    const size_t column = i % layer.model_dim;
    input[i] += 1.5F * (weights.gate[column] + weights.gate[layer.model_dim + column]);
  }
  return input;
}

// Of each rank: the statistics of its slice.
std::vector<RouterStatistics> RunS1(const Workload& workload) {
  std::vector<RouterStatistics> statistics(kRanks);
  std::vector<std::unique_ptr<Mesh>> meshes = MakeInProcessMeshes(kRanks);
  testing::RunHostRanks(
      kRanks, [&](int rank) { return std::move(meshes[rank]); },
      [&](HostRank& host) {
        const int rank = host.world().rank();
        const LayerPlan plan = {.workload = workload, .cluster = kCluster, .knobs = {.family = Family::kParmS1}};
        const LayerWeights weights = MakeWeights(workload.layer, ShardOf(workload.layer, workload.layout, rank), kSeed);
        auto layer = MoeLayer::Make(plan, host.runtime(), weights);
        ASSERT_TRUE(layer.ok()) << layer.status().message();
        std::vector<float> rows = LeaningInput(workload, rank);
        const auto bytes = std::as_writable_bytes(std::span(rows));
        ASSERT_EQ(layer->Forward(bytes, bytes), OkStatus());
        statistics[rank] = *layer->router_statistics();
      });
  return statistics;
}

class RoutedRowsTest : public ::testing::TestWithParam<double> {};

TEST_P(RoutedRowsTest, TheBusiestRankHasTheRowsThatArePriced) {
  const Workload workload = WorkloadOf(GetParam());
  const std::vector<RouterStatistics> statistics = RunS1(workload);
  const int experts = workload.layer.experts;

  // What the routers did, as a trace would tell it.
  Workload routed = workload;
  routed.routing = ExpertRouting{std::vector<double>(experts, 0), std::nullopt};
  double sent = 0, received = 0, all = 0, kept = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const RouterStatistics& own = statistics[rank];
    for (int expert = 0; expert < experts; ++expert) routed.routing->tokens_per_expert[expert] += own.pairs[expert];
    sent = std::max(sent, std::accumulate(own.kept.begin(), own.kept.end(), 0.0));
    all += static_cast<double>(AllPairs(own));
    kept += std::accumulate(own.kept.begin(), own.kept.end(), 0.0);
    double from_group = 0;
    const int holder = IndexIn(Group::kExpertShard, workload.layout, rank) / workload.layout.expert_sharding_parallel;
    for (const int member : MembersOf(Group::kExpertShard, workload.layout, rank)) {
      const auto first = statistics[member].kept.begin() + holder * (experts / workload.layout.expert_parallel);
      from_group += std::accumulate(first, first + experts / workload.layout.expert_parallel, 0.0);
    }
    received = std::max(received, from_group);
  }

  const SliceRows priced = BusiestSliceRows(routed);
  EXPECT_NEAR(priced.sent, sent, 0.03 * sent);
  EXPECT_NEAR(priced.received, received, 0.03 * received);
  EXPECT_NEAR(DroppedShare(routed), 1 - kept / all, 0.01);
  EXPECT_GT(BusiestRatio(ExpertPairs(routed)), 1.5) << "the gate was to favour some experts";
  if (GetParam() >= 1) {
    EXPECT_GT(received, 1.1 * kept / kRanks * 2) << "and a rank: each row goes to two shards";
  }
}

// With room for all, and with so little that the first slices take most slots.
INSTANTIATE_TEST_SUITE_P(CapacityFactors, RoutedRowsTest, ::testing::Values(4.0, 1.0, 0.4));

}  // namespace
}  // namespace moeplan::executor
