#include "models/routing/node_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "models/routing/expert_load.h"
#include "models/text.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

// 16 experts on 2 nodes, 4,096 tokens a source batch.
constexpr Cluster kCluster = {.nodes = 2, .gpus_per_node = 4};
constexpr int kExperts = 16, kTokens = 4096, kNodes = 2, kExpertsPerNode = kExperts / kNodes;

Workload WorkloadOf(int top_k, double capacity_factor = 0, int slices = 1) {
  Workload workload;
  workload.layer = {.batch = 1,
                    .sequence_length = kTokens,
                    .model_dim = 8,
                    .hidden_dim = 16,
                    .experts = kExperts,
                    .top_k = top_k,
                    .capacity_factor = capacity_factor};
  workload.layout = {.tensor_parallel = slices, .expert_parallel = 4, .expert_sharding_parallel = 2};
  return workload;
}

Workload Resolved(Workload workload) {
  auto resolved = ResolveWorkload(workload, kCluster);
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  return WithExpectedSlots(*std::move(resolved));
}

// The experts of a token: k different ones, drawn one after the other with their shares, within the token's groups.
std::vector<int> Choose(const Layer& layer, std::vector<double> shares, std::mt19937_64& random) {
  if (layer.router.groups_per_token < layer.router.expert_groups) {
    std::vector<int> groups(layer.router.expert_groups);
    std::iota(groups.begin(), groups.end(), 0);
    std::ranges::shuffle(groups, random);
    const int of_group = kExperts / layer.router.expert_groups;
    for (int i = layer.router.groups_per_token; i < layer.router.expert_groups; ++i) {
      std::fill_n(shares.begin() + groups[i] * of_group, of_group, 0);
    }
  }
  std::vector<int> experts;
  for (int choice = 0; choice < layer.top_k; ++choice) {
    experts.push_back(std::discrete_distribution<int>(shares.begin(), shares.end())(random));
    shares[experts.back()] = 0;
  }
  return experts;
}

// By token the experts that have taken it.
std::vector<std::vector<int>> Kept(const Workload& workload, std::mt19937_64& random) {
  const Layer& layer = workload.layer;
  const int slots = std::min(SizesOf(layer, workload.layout).slots, kTokens);
  std::vector<std::vector<int>> kept(kTokens);
  std::vector<int> taken(kExperts), tokens(kTokens);
  std::iota(tokens.begin(), tokens.end(), 0);
  if (layer.gate == GateKind::kExpertChoice) {
    for (int expert = 0; expert < kExperts; ++expert) {
      std::ranges::shuffle(tokens, random);
      for (int i = 0; i < slots; ++i) kept[tokens[i]].push_back(expert);
    }
    return kept;
  }
  std::vector<std::vector<int>> chosen;
  for (int token = 0; token < kTokens; ++token) chosen.push_back(Choose(layer, ExpertShares(workload), random));
  const auto take = [&](int token, int choice) {
    const int expert = chosen[token][choice];
    if (taken[expert]++ < slots) kept[token].push_back(expert);
  };
  const bool by_choice = layer.gate == GateKind::kBatchPrioritized;
  for (int i = 0; i < kTokens * layer.top_k; ++i) {
    by_choice ? take(i % kTokens, i / kTokens) : take(i / layer.top_k, i % layer.top_k);
  }
  return kept;
}

// Counts what ranks would send if every source batch were this one.
NodeRows Counted(const Workload& workload, const std::vector<std::vector<int>>& kept) {
  const int slices = workload.layout.tensor_parallel, shards = workload.layout.expert_sharding_parallel;
  NodeRows most;
  std::vector<double> to_ranks(workload.layout.expert_parallel);
  for (int slice = 0; slice < slices; ++slice) {
    double rows[kNodes] = {}, pairs[kNodes] = {};
    for (int token = slice * kTokens / slices; token < (slice + 1) * kTokens / slices; ++token) {
      bool goes[kNodes] = {};
      for (const int expert : kept[token]) {
        goes[expert / kExpertsPerNode] = true;
        ++pairs[expert / kExpertsPerNode];
        // Every rank of the group with that slice sends so many.
        to_ranks[expert * workload.layout.expert_parallel / kExperts] += 8.0 / slices;
      }
      for (int node = 0; node < kNodes; ++node) rows[node] += goes[node] ? 1 : 0;
    }
    most.sent = std::max(most.sent, rows[0] + rows[1]);
    most.received = std::max(most.received, kNodes * std::max(rows[0], rows[1]));
    most.passed_on = std::max(most.passed_on, kNodes * std::max(pairs[0], pairs[1]));
  }
  EXPECT_EQ(workload.layout.expert_parallel * shards, 8);
  most.arriving = *std::ranges::max_element(to_ranks);
  return most;
}

void ExpectCounted(const Workload& workload, double tolerance) {
  std::mt19937_64 random(TestSeed());
  const NodeRows counted = Counted(workload, Kept(workload, random)), rows = BusiestNodeRows(workload, kNodes);
  EXPECT_NEAR(rows.sent, counted.sent, tolerance * counted.sent);
  EXPECT_NEAR(rows.received, counted.received, tolerance * counted.received);
  EXPECT_NEAR(rows.passed_on, counted.passed_on, tolerance * counted.passed_on);
  EXPECT_NEAR(rows.arriving, counted.arriving, tolerance * counted.arriving);
}

TEST(NodeRowsTest, AnEvenRouterSendsWhatDrawsOfItSend) {
  for (const int top_k : {1, 2, 4, 8, 16}) {
    for (const int slices : {1, 2}) {
      SCOPED_TRACE(StrCat("top ", top_k, ", ", slices, " slices"));
      ExpectCounted(Resolved(WorkloadOf(top_k, 0, slices)), 0.05);
    }
  }
}

// Ranks draw for themselves; the one that gets the most is looked at, in the mean over many batches.
TEST(NodeRowsTest, ADroplessLayerWaitsForTheRankThatChanceGivesTheMost) {
  constexpr int kRanks = 8, kPlaces = kRanks / kNodes, kHolders = 4, kBatches = 60, kFewTokens = 512;
  std::mt19937_64 random(TestSeed());
  for (const int top_k : {2, 6}) {
    Workload workload = WorkloadOf(top_k);
    workload.layer.sequence_length = kFewTokens;
    workload = Resolved(workload);
    const std::vector<double> shares = ExpertShares(workload);
    NodeRows counted;
    for (int batch = 0; batch < kBatches; ++batch) {
      double received[kRanks] = {}, passed_on[kRanks] = {}, arriving[kHolders] = {};
      for (int rank = 0; rank < kRanks; ++rank) {
        for (int token = 0; token < kFewTokens; ++token) {
          bool goes[kNodes] = {};
          for (const int expert : Choose(workload.layer, shares, random)) {
            const int node = expert / kExpertsPerNode;
            goes[node] = true;
            ++passed_on[node * kPlaces + rank % kPlaces];
            ++arriving[expert * kHolders / kExperts];
          }
          for (int node = 0; node < kNodes; ++node) received[node * kPlaces + rank % kPlaces] += goes[node] ? 1 : 0;
        }
      }
      counted.received += *std::ranges::max_element(received) / kBatches;
      counted.passed_on += *std::ranges::max_element(passed_on) / kBatches;
      counted.arriving += *std::ranges::max_element(arriving) / kBatches;
    }
    const NodeRows rows = BusiestNodeRows(workload, kNodes);
    EXPECT_NEAR(rows.received, counted.received, 0.008 * counted.received);
    EXPECT_NEAR(rows.passed_on, counted.passed_on, 0.008 * counted.passed_on);
    EXPECT_NEAR(rows.arriving, counted.arriving, 0.008 * counted.arriving);
    EXPECT_GT(counted.passed_on, 1.01 * kFewTokens * top_k) << "nothing was tested";
    EXPECT_EQ(BusiestNodeRows(Resolved(WorkloadOf(top_k, /*capacity_factor=*/4)), kNodes).passed_on, kTokens * top_k)
        << "with capacity, as many as the average";
  }
}

TEST(NodeRowsTest, CapacityDropsTheLastTokensOrTheLastChoices) {
  for (const double factor : {0.25, 0.6, 3.0}) {
    for (const GateKind gate : {GateKind::kTopK, GateKind::kBatchPrioritized}) {
      SCOPED_TRACE(StrCat("f ", factor, gate == GateKind::kTopK ? ", token by token" : ", choice by choice"));
      Workload workload = WorkloadOf(4, factor);
      workload.layer.gate = gate;
      // Some of the choices that are kept are a token's second on its node.
      ExpectCounted(Resolved(workload), gate == GateKind::kTopK ? 0.05 : 0.2);
    }
  }
}

TEST(NodeRowsTest, ExpertsThatChooseFillTheirSlots) {
  for (const double factor : {0.5, 1.0, 2.0}) {
    SCOPED_TRACE(StrCat("f ", factor));
    Workload workload = WorkloadOf(2, factor);
    workload.layer.gate = GateKind::kExpertChoice;
    ExpectCounted(Resolved(workload), 0.05);
  }
}

TEST(NodeRowsTest, ARouterThatFavoursANodeSendsMoreThere) {
  Workload workload = WorkloadOf(2);
  workload.routing = ExpertRouting{.tokens_per_expert = {3, 3, 3, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1}};
  for (const int slices : {1, 2}) {
    workload.layout.tensor_parallel = slices;
    for (const double factor : {0.0, 0.5}) {
      SCOPED_TRACE(StrCat(slices, " slices, f ", factor));
      workload.layer.capacity_factor = factor;
      // Experts that are full at different times drop single pairs of a token, whose row travels all the same.
      ExpectCounted(Resolved(workload), factor == 0 ? 0.1 : 0.15);
    }
  }
}

TEST(NodeRowsTest, AnAlmostEvenRouterSendsWhatAnEvenOneDoes) {
  Workload workload = WorkloadOf(4, /*capacity_factor=*/1);
  workload.layer.router.expert_groups = 4;
  workload.layer.router.groups_per_token = 1;
  const NodeRows even = BusiestNodeRows(Resolved(workload), kNodes);
  EXPECT_DOUBLE_EQ(even.sent, kTokens) << "a group of experts is on one node";
  ExpectCounted(Resolved(workload), 0.05);
  workload.routing = ExpertRouting{.tokens_per_expert = {}, .skew = 1e-6};
  EXPECT_NEAR(BusiestNodeRows(Resolved(workload), kNodes).sent, even.sent, 1e-3 * even.sent);
}

}  // namespace
}  // namespace moeplan
