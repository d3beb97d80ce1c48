// What a training graph has measured: its kernels and exchanges, whole and in parts, and what runs beside what.
#include "models/measurement/graph_needs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace moeplan {
namespace {

constexpr Cluster kCluster = {.nodes = 2, .gpus_per_node = 2};

TrainingGraph Graph() {
  TrainingGraph graph = {.max_parts = 4};
  Instruction experts = {.id = "experts", .op = InstructionOp::kExpert, .time_s = 1, .outputs = {"y"}};
  experts.work = {{KernelKey{.kernel = Kernel::kExpertGemm}, 1e9}};
  experts.output_bytes = {65536};
  Instruction exchange = {.id = "a", .op = InstructionOp::kAllToAll, .inputs = {"y"}, .outputs = {"z"}};
  exchange.bytes = 4096;
  exchange.group_size = 4;
  exchange.ranks_per_node = 2;
  exchange.counts_bytes = 64;
  Instruction back = experts;
  back.id = "back";
  back.phase = Pass::kBackward;
  back.outputs = {"w"};
  back.work = {{KernelKey{.kernel = Kernel::kExpertWeightGradient}, 1e9}};
  Instruction sum = exchange;
  sum.id = "sum";
  sum.op = InstructionOp::kReduceScatter;
  sum.phase = Pass::kBackward;
  sum.counts_bytes.reset();
  sum.bytes = 1e6;
  sum.inputs = {"w"};
  sum.outputs = {};
  graph.instructions = {experts, exchange, back, sum};
  return graph;
}

bool Has(const std::vector<Need>& needs, const CostKey& key, double size) {
  return std::ranges::any_of(needs, [&](const Need& need) { return need.key == Essential(key) && need.size == size; });
}

TEST(GraphNeedsTest, PartsOfTheForwardPassAndAllOfTheBackwardPass) {
  const TrainingGraph graph = Graph();
  ASSERT_TRUE(ValidateTrainingGraph(graph).ok()) << ValidateTrainingGraph(graph).message();
  const std::vector<Need> needs = NeedsOfGraph(graph, kCluster);
  const KernelKey product = {.kernel = Kernel::kExpertGemm}, gradient = {.kernel = Kernel::kExpertWeightGradient};
  const CostKey exchange = CollectiveWork(graph.instructions[1]).key, sum = CollectiveWork(graph.instructions[3]).key;
  for (const double parts : {1, 2, 4}) {
    EXPECT_TRUE(Has(needs, product, 1e9 / parts)) << parts;
    EXPECT_TRUE(Has(needs, exchange, 4096 / parts)) << parts;
  }
  EXPECT_FALSE(Has(needs, product, 1e9 / 8));
  EXPECT_TRUE(Has(needs, gradient, 1e9));
  EXPECT_FALSE(Has(needs, gradient, 5e8));
  EXPECT_TRUE(Has(needs, sum, 1e6));
  EXPECT_FALSE(Has(needs, sum, 5e5));
  EXPECT_TRUE(Has(needs, exchange, 64));
  EXPECT_TRUE(Has(needs, KernelKey{.kernel = Kernel::kDeviceCopy}, 65536));
}

TEST(GraphNeedsTest, WhatRunsBesideWhatIsMeasuredToo) {
  const TrainingGraph graph = Graph();
  const std::vector<Need> needs = NeedsOfGraph(graph, kCluster);
  const KernelKey product = {.kernel = Kernel::kExpertGemm};
  const CostKey exchange = CollectiveWork(graph.instructions[1]).key, sum = CollectiveWork(graph.instructions[3]).key;
  EXPECT_TRUE(Has(needs, WithContention(exchange, Contention::kWithExpertGemm), 2048));
  EXPECT_TRUE(Has(needs, WithContention(exchange, Contention::kWithAllGather), 4096));
  EXPECT_TRUE(Has(needs, WithContention(sum, Contention::kWithAllToAll), 1e6));
  EXPECT_TRUE(Has(needs, WithContention(product, Contention::kWithAllToAll), 1e9));
  EXPECT_TRUE(Has(needs, WithContention(product, Contention::kWithAllGather), 1e9));
  // No exchange of a stream meets another of the same.
  EXPECT_FALSE(Has(needs, WithContention(exchange, Contention::kWithAllToAll), 4096));
}

TEST(GraphNeedsTest, EachIsAskedOnceMostUsefulFirst) {
  const std::vector<Need> needs = NeedsOfGraph(Graph(), kCluster);
  for (size_t i = 1; i < needs.size(); ++i) {
    EXPECT_LE(needs[i].weight, needs[i - 1].weight);
    EXPECT_FALSE(std::any_of(needs.begin(), needs.begin() + static_cast<std::ptrdiff_t>(i), [&](const Need& other) {
      return other.key == needs[i].key && other.size == needs[i].size;
    }));
  }
  EXPECT_TRUE(NeedsOfGraph(TrainingGraph(), kCluster).empty());
}

}  // namespace
}  // namespace moeplan
