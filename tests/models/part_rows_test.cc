// The busiest rank's rows of a part against tokens that are drawn, and against closed cases.
#include "models/routing/part_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "models/plan/part_shares.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

struct Routed {
  int tokens = 0;  // That a rank's gate sees.
  int experts = 0, top_k = 1, ranks = 1, shards = 1;
  double capacity_factor = 1;
};

Workload WorkloadOf(const Routed& routed) {
  Workload workload;
  workload.layer = {.batch = 2,
                    .sequence_length = routed.tokens,
                    .model_dim = 8,
                    .hidden_dim = 16,
                    .experts = routed.experts,
                    .top_k = routed.top_k,
                    .capacity_factor = routed.capacity_factor};
  workload.layout = {.tensor_parallel = 2, .expert_parallel = routed.ranks, .expert_sharding_parallel = routed.shards};
  return workload;
}

// Draws the experts of every token as a router would that favours none, fills slots part by part, and counts what the
// busiest rank gets of a part, over its slots of the whole batch: the mean over parts and draws.
double DrawnShare(const Routed& routed, int parts, std::mt19937_64& random) {
  constexpr int kDraws = 200;
  const double slots_real = routed.capacity_factor * routed.top_k * routed.tokens / routed.experts;
  const int slots = static_cast<int>(std::ceil(slots_real - 1e-9)), of_rank = routed.experts / routed.ranks;
  std::vector<int> experts(routed.experts);
  std::iota(experts.begin(), experts.end(), 0);
  double busiest = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<std::vector<int>> rows(parts, std::vector<int>(routed.ranks, 0));
    for (int source = 0; source < routed.ranks * routed.shards; ++source) {
      std::vector<int> left(routed.experts, slots);
      for (int token = 0; token < routed.tokens; ++token) {
        std::vector<int>& of_part = rows[token * parts / routed.tokens];
        for (int choice = 0; choice < routed.top_k; ++choice) {
          std::swap(experts[choice], experts[choice + random() % (routed.experts - choice)]);
          int& free = left[experts[choice]];
          if (free > 0) --free, ++of_part[experts[choice] / of_rank];
        }
      }
    }
    for (const std::vector<int>& of_part : rows) busiest += std::ranges::max(of_part);
  }
  return busiest / (kDraws * parts) / (slots_real * of_rank * routed.ranks * routed.shards);
}

TEST(PartRowsTest, TheBusiestRankHasWhatDrawnTokensBringIt) {
  std::mt19937_64 random(TestSeed());
  for (const Routed& routed : {Routed{.tokens = 512, .experts = 16, .ranks = 8},
                               Routed{.tokens = 512, .experts = 32, .ranks = 16, .shards = 2},
                               Routed{.tokens = 256, .experts = 8, .top_k = 2, .ranks = 8, .capacity_factor = 1.25},
                               Routed{.tokens = 1024, .experts = 64, .top_k = 4, .ranks = 16, .capacity_factor = 1.25},
                               Routed{.tokens = 128, .experts = 16, .top_k = 2, .ranks = 4, .capacity_factor = 4},
                               Routed{.tokens = 512, .experts = 8, .top_k = 2, .ranks = 2, .capacity_factor = 0.75}}) {
    const PartRows rows(WorkloadOf(routed));
    for (const int parts : {2, 4, 8}) {
      const double drawn = DrawnShare(routed, parts, random), expected = rows.ShareOfWhole(parts);
      // The last parts have less than the first where slots run out.
      const double allowed = routed.capacity_factor > 1 ? 0.01 : 0.02;
      EXPECT_NEAR(expected, drawn, allowed * drawn) << routed.experts << " experts, " << parts << " parts";
    }
  }
}

TEST(PartRowsTest, MorePartsAreLessEven) {
  const PartRows rows(WorkloadOf({.tokens = 4096, .experts = 64, .top_k = 2, .ranks = 16, .capacity_factor = 1.25}));
  for (int parts = 2; parts < 64; ++parts) {
    EXPECT_LT(rows.BusiestRatio(parts), rows.BusiestRatio(parts + 1));
    EXPECT_LT(parts * rows.ShareOfWhole(parts), (parts + 1) * rows.ShareOfWhole(parts + 1));
    EXPECT_GT(rows.ShareOfWhole(parts), rows.ShareOfWhole(parts + 1));
  }
  EXPECT_EQ(rows.ShareOfWhole(1), 1);
}

TEST(PartRowsTest, ADroplessBatchIsDoneWhenItsBusiestRankIs) {
  const PartRows rows(WorkloadOf({.tokens = 512, .experts = 16, .top_k = 2, .ranks = 8, .capacity_factor = 0}));
  // 1024 pairs a rank, m(8) = 1.4236, (16 - 2)/(16 - 1): 1 + 1.3754/32 of the mean as a whole, 1 + 1.3754/16 in four.
  EXPECT_NEAR(rows.BusiestRatio(1), 1.0430, 1e-4);
  EXPECT_NEAR(rows.BusiestRatio(4), 1.0860, 1e-4);
  EXPECT_NEAR(rows.ShareOfWhole(4), 1.0860 / 1.0430 / 4, 1e-4);
  EXPECT_EQ(rows.ShareOfWhole(1), 1);
}

TEST(PartRowsTest, OneRankHasTheMean) {
  const PartRows rows(WorkloadOf({.tokens = 64, .experts = 8, .top_k = 2, .capacity_factor = 4}));
  for (const int parts : {1, 2, 8}) EXPECT_EQ(rows.BusiestRatio(parts), 1);
  // Nothing is dropped, and a fourth of the slots are filled.
  EXPECT_NEAR(rows.ShareOfWhole(2), 0.25 / 2, 1e-9);
}

TEST(PartRowsTest, EveryTokenOfAllExpertsIsEven) {
  const PartRows rows(WorkloadOf({.tokens = 64, .experts = 4, .top_k = 4, .ranks = 4}));
  EXPECT_EQ(rows.BusiestRatio(8), 1);
  EXPECT_NEAR(rows.ShareOfWhole(8), 1.0 / 8, 1e-12);
}

TEST(PartRowsTest, NoRankHasMoreThanCapacityOrThanAllTokens) {
  // Parts of two tokens, and slots for a tenth of the pairs.
  const PartRows few(WorkloadOf({.tokens = 16, .experts = 64, .ranks = 64, .capacity_factor = 0.1}));
  for (const int parts : {2, 4, 8, 64}) EXPECT_LE(few.ShareOfWhole(parts), 1);
  // A token chooses both experts of a rank at most: that is eight times the mean of 8 ranks.
  const PartRows both(WorkloadOf({.tokens = 1, .experts = 16, .top_k = 2, .ranks = 8, .capacity_factor = 8}));
  EXPECT_EQ(both.BusiestRatio(64), 8);
  const PartRows single(WorkloadOf({.tokens = 1, .experts = 8, .top_k = 2, .ranks = 8, .capacity_factor = 4}));
  EXPECT_EQ(single.BusiestRatio(64), 4);
}

TEST(PartRowsTest, TheLargestOfNormalValues) {
  EXPECT_EQ(ExpectedLargestNormal(1), 0);
  EXPECT_NEAR(ExpectedLargestNormal(2), 0.5641895835, 1e-6);  // 1/√π.
  EXPECT_NEAR(ExpectedLargestNormal(3), 0.8462843753, 1e-6);  // 3/(2·√π).
  EXPECT_NEAR(ExpectedLargestNormal(1000), 3.2414357, 1e-5);
}

TrainingGraph ExchangeGraph() {
  TrainingGraph graph = {.workload = WorkloadOf({.tokens = 512, .experts = 16, .ranks = 8, .capacity_factor = 1.25})};
  graph.instructions = {{.id = "out",
                         .op = InstructionOp::kAllToAll,
                         .time_s = 10,
                         .part_times_s = {10, 5, 4},
                         .bytes = 100,
                         .counts_bytes = 4},
                        {.id = "dense", .op = InstructionOp::kMatmul, .time_s = 10, .part_times_s = {10, 5}}};
  return graph;
}

TEST(PartSharesTest, ThoseOfExchangesAlongSamplesAreUneven) {
  TrainingGraph graph = ExchangeGraph();
  const Instruction out = graph.instructions[0], dense = graph.instructions[1];
  const PartShares shares(graph);
  const PartRows rows(*graph.workload);
  EXPECT_EQ(shares.Of(out, 2, CutAxis::kSamples), rows.ShareOfWhole(2));
  EXPECT_EQ(shares.Of(out, 1, CutAxis::kSamples), 1);
  EXPECT_EQ(shares.Of(out, 2, CutAxis::kCapacity), 0.5);
  EXPECT_EQ(shares.Of(dense, 2, CutAxis::kSamples), 0.5);
  EXPECT_EQ(shares.Of(out, 4, CutAxis::kSamples), 0.25);  // The graph has no time of it.
  // On the line through 1 and what the part is: from 10 s down by 5 s for what is missing of it.
  EXPECT_NEAR(*shares.EvenS(out, 2), 10 - 5 * 0.5 / (1 - rows.ShareOfWhole(2)), 1e-12);
  EXPECT_FALSE(shares.EvenS(dense, 2).has_value());
  EXPECT_FALSE(shares.EvenS(out, 1).has_value());
  graph.instructions[0].counts_bytes.reset();
  EXPECT_EQ(PartShares(graph).Of(out, 2, CutAxis::kSamples), 0.5);
  // Experts whose rows no all-to-all sends need no counts ahead of them.
  Instruction experts = out;
  experts.op = InstructionOp::kExpert;
  experts.counts_bytes.reset();
  EXPECT_EQ(PartShares(graph).Of(experts, 2, CutAxis::kSamples), 0.5);
  graph.instructions[0] = experts;
  EXPECT_EQ(PartShares(graph).Of(experts, 2, CutAxis::kSamples), rows.ShareOfWhole(2));
  graph = ExchangeGraph();
  graph.workload->layer.top_k = 17;  // Somebody may write it so.
  EXPECT_EQ(PartShares(graph).Of(out, 2, CutAxis::kSamples), 0.5);
  graph.workload.reset();
  EXPECT_EQ(PartShares(graph).Of(out, 2, CutAxis::kSamples), 0.5);
}

}  // namespace
}  // namespace moeplan
