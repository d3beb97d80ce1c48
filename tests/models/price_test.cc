#include "models/timeline/price.h"
#include "models/measurement/cost_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "models/memory/graph_memory.h"
#include "models/timeline/timeline.h"
#include "tests/models/hand_made_graph.h"

namespace moeplan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Layer kLayer = {.batch = 1,
                          .sequence_length = 64,
                          .model_dim = 8,
                          .hidden_dim = 16,
                          .experts = 4,
                          .top_k = 2,
                          .capacity_factor = 1.0};
// On nodes of 8: MP (2, 2), ESP (2, 2), EP (4, 4), EP&ESP (8, 8).
constexpr Layout kLayout = {.tensor_parallel = 2, .expert_parallel = 4, .expert_sharding_parallel = 2};
constexpr int kGpus = 8;

CollectiveModel Line(CollectiveKey key, double alpha_s, double beta_s_per_byte) {
  return {key, MakeCostModel(AlphaBeta{alpha_s, beta_s_per_byte})};
}
KernelModel Line(KernelKey key, double alpha_s, double beta_s_per_unit) {
  return {key, MakeCostModel(AlphaBeta{alpha_s, beta_s_per_unit})};
}

constexpr CollectiveKey kAllToAllOverEp = {.collective = Collective::kAllToAll, .group = {4, 4}};
constexpr CollectiveKey kAllGatherOverMp = {.collective = Collective::kAllGather, .group = {2, 2}};

// Prices that can be added up in one's head: 1 s, 2 s, ... and a little per byte.
Profile HandMadeProfile() {
  Profile profile;
  profile.cluster = {.nodes = 1, .gpus_per_node = kGpus};
  profile.collectives = {Line(kAllToAllOverEp, 1, 0.001), Line(kAllGatherOverMp, 2, 0.001)};
  profile.kernels = {Line(KernelKey{.kernel = Kernel::kExpertGemm}, 4, 0.001),
                     Line(KernelKey{.kernel = Kernel::kPermute}, 8, 0), Line(KernelKey{.kernel = Kernel::kGate}, 16, 0),
                     Line(KernelKey{.kernel = Kernel::kDeviceCopy}, 32, 0)};
  return profile;
}

TEST(PriceTest, EachTaskIsChargedAsItsOperation) {
  HandMadeGraph graph(kLayer, kLayout, kGpus);
  graph.Gate(100);
  graph.Permute(100);
  graph.AllToAll(Group::kExpert, 100);
  graph.AllGather(Group::kTensor, 200);
  graph.Copy(100);
  graph.Expert(1000);
  graph.Add(TaskKind::kReduce, StreamKind::kCompute, 100, ReduceOp{0, 0});
  graph.Add(TaskKind::kCombine, StreamKind::kCompute, 100, CombineOp{0, 0, 0});
  graph.Add(TaskKind::kOther, StreamKind::kCompute, 100, AssignSlotsOp{0, 0, 0});
  const GraphPrices prices = PriceGraph(graph.graph(), HandMadeProfile());
  std::vector<double> time_s;
  for (const TaskPrice& price : prices.tasks) time_s.push_back(price.time_s);
  // GATE 16, PERMUTE 8, A2A 1 + 0.1, AG 2 + 0.2, COPY 32, EXPERT 4 + 1, two more PERMUTE, and one that is free.
  EXPECT_THAT(time_s, ElementsAre(16, 8, 1.1, 2.2, 32, 5, 8, 8, 0));
  EXPECT_THAT(prices.missing, IsEmpty());
  EXPECT_THAT(prices.notes.Warnings(), IsEmpty());
}

TEST(PriceTest, GroupsOfOneRankAndTasksOfSizeZeroNeedNoEntry) {
  HandMadeGraph graph(kLayer, {.tensor_parallel = 1, .expert_parallel = 4, .expert_sharding_parallel = 2}, kGpus);
  graph.AllGather(Group::kTensor, 1e6);  // One rank.
  graph.AllToAll(Group::kExpert, 0);
  graph.Expert(0);
  const GraphPrices prices = PriceGraph(graph.graph(), Profile{});
  for (const TaskPrice& price : prices.tasks) EXPECT_EQ(price.time_s, 0);
  EXPECT_THAT(prices.missing, IsEmpty());
}

TEST(PriceTest, MissingCollectivesAndExpertGemmLeaveTheGraphWithoutAPrice) {
  HandMadeGraph graph(kLayer, kLayout, kGpus);
  graph.AllToAll(Group::kExpert, 100);
  graph.AllToAll(Group::kExpert, 50);
  graph.Expert(1000);
  const GraphPrices prices = PriceGraph(graph.graph(), Profile{});
  ASSERT_EQ(prices.missing.size(), 2u);
  // H is 16, cut over N_ESP = 2: the GEMM sees 8.
  EXPECT_EQ(MissingReason(prices.missing, kLayout),
            "the profile lacks ALL_TO_ALL groupSize 4 ranksPerNode 4 and EXPERT_GEMM bytesPerElement 2 modelDim 8 "
            "hiddenDim 8; measure with: moeplan calibrate CLUSTER --db DB --layouts GRID.json --json (GRID.json: this "
            "workload, layout tensorParallel 2, expertParallel 4, expertShardingParallel 2)");
}

TEST(PriceTest, OtherMissingKernelsCostNothingAndAreNamedOnce) {
  HandMadeGraph graph(kLayer, kLayout, kGpus);
  graph.Gate(100);
  graph.Permute(100);
  graph.Permute(200);
  graph.Copy(100);
  const GraphPrices prices = PriceGraph(graph.graph(), Profile{});
  EXPECT_THAT(prices.missing, IsEmpty());
  EXPECT_THAT(prices.notes.Warnings(),
              ElementsAre("DEVICE_COPY: not in the profile; priced 0",
                          "GATE bytesPerElement 2 modelDim 8: not in the profile; priced 0",
                          "PERMUTE bytesPerElement 2 modelDim 8: not in the profile; priced 0"));
}

TEST(PriceTest, ExtrapolationIsNamedOncePerKeyWithTheRangeAsked) {
  Profile profile;
  profile.collectives = {
      {kAllToAllOverEp, MakeCostModel(LogLog{{{1024, 1e-5}, {67108864, 1e-2}}})},
  };
  HandMadeGraph graph(kLayer, kLayout, kGpus);
  graph.AllToAll(Group::kExpert, 3.2e8);
  graph.AllToAll(Group::kExpert, 3.2e8);
  graph.AllToAll(Group::kExpert, 4096);  // Within the range.
  EXPECT_THAT(PriceGraph(graph.graph(), profile).notes.Warnings(),
              ElementsAre("ALL_TO_ALL groupSize 4 ranksPerNode 4: asked at 3.2e+08 bytes, measured 1024 to 6.7e+07; "
                          "extrapolated"));
  graph.AllToAll(Group::kExpert, 512);
  EXPECT_THAT(PriceGraph(graph.graph(), profile).notes.Warnings(),
              ElementsAre(HasSubstr("asked at 512 to 3.2e+08 bytes")));
}

TEST(PriceTest, EntriesForOtherElementSizesAreNotUsed) {
  Profile profile = HandMadeProfile();
  CollectiveKey fp32 = kAllToAllOverEp;
  fp32.bytes_per_element = 4;
  profile.collectives.push_back(Line(fp32, 100, 0));
  HandMadeGraph graph(kLayer, kLayout, kGpus);  // Two bytes an element.
  graph.AllToAll(Group::kExpert, 1000);
  EXPECT_EQ(PriceGraph(graph.graph(), profile).tasks[0].time_s, 2);  // 1 + 0.001·1000
  CollectiveKey bf16 = kAllToAllOverEp;
  bf16.bytes_per_element = 2;
  profile.collectives.push_back(Line(bf16, 50, 0));
  EXPECT_EQ(PriceGraph(graph.graph(), profile).tasks[0].time_s, 50);
}

TEST(PriceTest, IntervalsOfTheFitAreCarriedOver) {
  Profile profile = HandMadeProfile();
  profile.collectives[0].model.fit = FitQuality{.interval_low_ratio = 0.5, .interval_high_ratio = 2};
  HandMadeGraph graph(kLayer, kLayout, kGpus);
  graph.AllToAll(Group::kExpert, 1000);
  const TaskPrice price = PriceGraph(graph.graph(), profile).tasks[0];
  EXPECT_EQ(price.low_s, 1);   // 2 s halved
  EXPECT_EQ(price.high_s, 4);  // and doubled.
}

TEST(PriceTest, TheErrorOfAFitReachesFurtherUpThanDown) {
  // |predicted / measured - 1| <= 0.5: what is predicted as 2 s was measured between 2 / 1.5 and 2 / 0.5 s.
  Profile profile = HandMadeProfile();
  profile.collectives[0].model.fit =
      FitQuality{.relative_error_p95 = 0.5, .interval_low_ratio = 0.1, .interval_high_ratio = 10, .points = 3};
  HandMadeGraph graph(kLayer, kLayout, kGpus);
  graph.AllToAll(Group::kExpert, 1000);
  TaskPrice price = PriceGraph(graph.graph(), profile).tasks[0];
  EXPECT_DOUBLE_EQ(price.low_s, 2 / 1.5);
  EXPECT_DOUBLE_EQ(price.high_s, 4);
  profile.collectives[0].model.fit->points = 2;  // Too few to have left one out: single measurements' interval.
  price = PriceGraph(graph.graph(), profile).tasks[0];
  EXPECT_DOUBLE_EQ(price.low_s, 0.2);
  EXPECT_DOUBLE_EQ(price.high_s, 20);
}

// ---- SAA.

TEST(PriceTest, SaaIsKeyedByGatherGroupAndShardsAndPricedOnItsPayload) {
  Profile profile;
  profile.collectives = {Line(
      CollectiveKey{.collective = Collective::kAllToAllAllGather, .group = {8, 8}, .gather_group_size = 2, .shards = 2},
      3, 0.01)};
  HandMadeGraph graph(kLayer, kLayout, kGpus);
  graph.Saa(100);
  EXPECT_EQ(PriceGraph(graph.graph(), profile).tasks[0].time_s, 4);
}

TEST(PriceTest, SaaWithoutTensorParallelismIsTheAllToAllAlone) {
  Profile profile;
  profile.collectives = {Line(CollectiveKey{.collective = Collective::kAllToAll, .group = {8, 8}}, 3, 0.01)};
  HandMadeGraph graph(kLayer, {.tensor_parallel = 1, .expert_parallel = 4, .expert_sharding_parallel = 2}, kGpus);
  graph.Saa(100);
  EXPECT_EQ(PriceGraph(graph.graph(), profile).tasks[0].time_s, 4);
}

TEST(PriceTest, SaaOverOneExpertRankIsTheGatherOfItsPayload) {
  // Nothing to exchange; each of the 4 tensor ranks brings 100 bytes, 400 are gathered: 2 + 0.4.
  Profile profile;
  profile.collectives = {Line(CollectiveKey{.collective = Collective::kAllGather, .group = {4, 4}}, 2, 0.001)};
  HandMadeGraph graph(kLayer, {.tensor_parallel = 4, .expert_parallel = 1, .expert_sharding_parallel = 1}, kGpus);
  graph.Saa(100);
  EXPECT_EQ(PriceGraph(graph.graph(), profile).tasks[0].time_s, 2.4);
}

// ---- Contention.

Profile WithContendedEntries() {
  Profile profile = HandMadeProfile();
  const auto contended = [](auto key, Contention contention) {
    key.contention = contention;
    return key;
  };
  profile.collectives.push_back(Line(contended(kAllToAllOverEp, Contention::kWithExpertGemm), 3, 0.001));
  profile.collectives.push_back(Line(contended(kAllGatherOverMp, Contention::kWithCopy), 1, 0));
  profile.kernels.push_back(
      Line(contended(KernelKey{.kernel = Kernel::kExpertGemm}, Contention::kWithAllToAll), 6, 0.0015));
  return profile;
}

double SlowdownUnder(const TaskPrice& price, Contention contention) {
  return price.slowdown[static_cast<int>(contention)];
}

TEST(PriceTest, SlowdownIsTheRatioOfContendedToUncontendedAtTheTasksSize) {
  HandMadeGraph graph(kLayer, kLayout, kGpus);
  const TaskId all_to_all = graph.AllToAll(Group::kExpert, 1000);
  const TaskId expert = graph.Expert(1000);
  const GraphPrices prices = PriceGraph(graph.graph(), WithContendedEntries());
  // (3 + 1) / (1 + 1) = 2 and (6 + 1.5) / (4 + 1) = 1.5.
  EXPECT_EQ(SlowdownUnder(prices.tasks[all_to_all], Contention::kWithExpertGemm), 2);
  EXPECT_EQ(SlowdownUnder(prices.tasks[expert], Contention::kWithAllToAll), 1.5);
  EXPECT_EQ(prices.tasks[all_to_all].imposes, Contention::kWithAllToAll);
  EXPECT_EQ(prices.tasks[expert].imposes, Contention::kWithExpertGemm);
  // All-to-all 2 s at half speed, expert 5 s at 1/1.5: the all-to-all ends at 4, the expert has done 4/1.5 and needs
  // 5 − 8/3 more: 4 + 7/3.
  EXPECT_NEAR(Play(graph.graph(), prices.tasks).total_s, 4 + 7.0 / 3, 1e-12);
}

TEST(PriceTest, ContentionIsNeverASpeedupAndNeedsNoEntry) {
  HandMadeGraph graph(kLayer, kLayout, kGpus);
  const TaskId gather = graph.AllGather(Group::kTensor, 1000);
  const TaskId copy = graph.Copy(1000);
  const GraphPrices prices = PriceGraph(graph.graph(), WithContendedEntries());
  EXPECT_EQ(SlowdownUnder(prices.tasks[gather], Contention::kWithCopy), 1);     // 1 s contended, 3 s alone: noise.
  EXPECT_EQ(SlowdownUnder(prices.tasks[copy], Contention::kWithAllGather), 1);  // Never measured.
}

TEST(PriceTest, BeyondTheSizesItWasMeasuredAtSlowdownIsThatOfTheNearest) {
  Profile profile = HandMadeProfile();
  CollectiveKey contended = kAllToAllOverEp;
  contended.contention = Contention::kWithExpertGemm;
  // One size, where the line says (1 + 0.01) · 2. Drawn on in proportion to the bytes it would be 202 s at 1000.
  profile.collectives.push_back({contended, MakeCostModel(LogLog{{{10, 2.02}}})});
  for (const double bytes : {1.0, 10.0, 1000.0}) {
    HandMadeGraph graph(kLayer, kLayout, kGpus);
    const TaskId all_to_all = graph.AllToAll(Group::kExpert, bytes);
    (void)graph.Expert(1000);
    const GraphPrices prices = PriceGraph(graph.graph(), profile);
    EXPECT_DOUBLE_EQ(SlowdownUnder(prices.tasks[all_to_all], Contention::kWithExpertGemm), 2) << bytes << " bytes";
    EXPECT_EQ(prices.notes.Warnings().size(), bytes == 10 ? 0 : 1) << "it is said that others were measured";
  }
}

// ---- Limited CTAs.

template <typename Key>
Key Limited(Key key, Contention contention = Contention::kNone, int ctas = 8) {
  key.contention = contention;
  key.ctas = ctas;
  return key;
}

// An all-to-all beside an expert, both of 1000, on a graph limited to 8 CTAs.
struct BesideEachOther {
  BesideEachOther() {
    graph.LimitCtas(8);
    all_to_all = graph.AllToAll(Group::kExpert, 1000);
    expert = graph.Expert(1000);
  }
  GraphPrices PricedBy(const Profile& profile) const { return PriceGraph(graph.graph(), profile); }

  HandMadeGraph graph{kLayer, kLayout, kGpus};
  TaskId all_to_all, expert;
};

TEST(PriceTest, CollectivesOfALimitedGraphArePricedWithItsLimitOrNotAtAll) {
  const BesideEachOther test;
  const GraphPrices unknown = test.PricedBy(WithContendedEntries());
  EXPECT_EQ(MissingReason(unknown.missing, kLayout),
            "the profile lacks ALL_TO_ALL groupSize 4 ranksPerNode 4 ctas 8; measure with: NCCL_MAX_CTAS=8 before "
            "nccl-tests, and moeplan import nccl-tests --ctas 8 LOG... --json");
  Profile profile = WithContendedEntries();
  profile.collectives.push_back(Line(Limited(kAllToAllOverEp), 7, 0.001));
  const GraphPrices prices = test.PricedBy(profile);
  EXPECT_THAT(prices.missing, IsEmpty());
  EXPECT_EQ(prices.tasks[test.all_to_all].time_s, 8);
  EXPECT_EQ(prices.tasks[test.expert].time_s, 5);  // Alone it does not care.
}

TEST(PriceTest, WhatIsMissingWithAndWithoutLimitsIsToldApart) {
  BesideEachOther test;
  EXPECT_THAT(MissingReason(test.PricedBy(Profile{}).missing, kLayout),
              testing::StartsWith("the profile lacks ALL_TO_ALL groupSize 4 ranksPerNode 4 ctas 8 and EXPERT_GEMM "
                                  "bytesPerElement 2 modelDim 8 hiddenDim 8; measure with: moeplan calibrate"));
  EXPECT_THAT(MissingReason(test.PricedBy(Profile{}).missing, kLayout), HasSubstr("; measure with: NCCL_MAX_CTAS=8"));
}

TEST(PriceTest, ExpertsAreSlowedAsByLimitedCommunicationWhereThatWasMeasured) {
  const BesideEachOther test;
  Profile profile = WithContendedEntries();
  profile.collectives.push_back(Line(Limited(kAllToAllOverEp), 7, 0.001));
  const auto slowdown = [&] {
    return SlowdownUnder(test.PricedBy(profile).tasks[test.expert], Contention::kWithAllToAll);
  };
  EXPECT_EQ(slowdown(), 1.5);  // As by unlimited communication, which slows it at least as much.
  profile.kernels.push_back(
      Line(Limited(KernelKey{.kernel = Kernel::kExpertGemm}, Contention::kWithAllToAll, 4), 4, 0));
  EXPECT_EQ(slowdown(), 1.5);  // Of another limit nothing is taken.
  profile.kernels.push_back(
      Line(Limited(KernelKey{.kernel = Kernel::kExpertGemm}, Contention::kWithAllToAll), 5, 0.0005));
  EXPECT_EQ(slowdown(), 1.1);  // (5 + 0.5) / (4 + 1).
}

TEST(PriceTest, ALimitedCollectiveIsSlowedAsMeasuredOrAsTheUnlimitedOne) {
  const BesideEachOther test;
  Profile profile = WithContendedEntries();
  profile.collectives.push_back(Line(Limited(kAllToAllOverEp), 7, 0.001));
  const auto slowdown = [&] {
    return SlowdownUnder(test.PricedBy(profile).tasks[test.all_to_all], Contention::kWithExpertGemm);
  };
  EXPECT_EQ(slowdown(), 2);  // (3 + 1) / (1 + 1).
  profile.collectives.push_back(Line(Limited(kAllToAllOverEp, Contention::kWithExpertGemm), 9, 0.001));
  EXPECT_EQ(slowdown(), 1.25);  // (9 + 1) / (7 + 1).
}

TEST(PriceTest, TheRangeThatALimitedLookUpLeavesIsToldOfTheEntryThatAnswered) {
  const BesideEachOther test;
  Profile profile = HandMadeProfile();
  profile.collectives.push_back(Line(Limited(kAllToAllOverEp), 7, 0.001));
  const KernelKey contended = {.kernel = Kernel::kExpertGemm, .contention = Contention::kWithAllToAll};
  profile.kernels.push_back({contended, MakeCostModel(LogLog{{{1, 4}, {10, 8}}})});
  EXPECT_THAT(test.PricedBy(profile).notes.Warnings(),
              ElementsAre("EXPERT_GEMM contention WITH_ALL_TO_ALL bytesPerElement 2 modelDim 8 hiddenDim 8: asked at "
                          "1000 flops, measured 1 to 10; extrapolated"));
}

TEST(PriceTest, TasksThatTheGraphOrdersNeverContend) {
  HandMadeGraph graph(kLayer, kLayout, kGpus);
  const TaskId all_to_all = graph.AllToAll(Group::kExpert, 1000);
  const TaskId copy = graph.Copy(1, {all_to_all});
  graph.Expert(1000, {copy});  // After the all-to-all by way of the copy.
  EXPECT_THAT(PossibleContention(graph.graph()), ElementsAre(ContentionSet{}, ContentionSet{}, ContentionSet{}));
}

TEST(PriceTest, OrderWithinAStreamCountsAsOrder) {
  HandMadeGraph graph(kLayer, kLayout, kGpus);
  graph.AllToAll(Group::kExpert, 1000);
  const TaskId second = graph.AllToAll(Group::kExpert, 1000);  // Same stream: after the first.
  graph.AllGather(Group::kTensor, 10, {second});               // So after the first as well.
  graph.Copy(10);                                              // Beside everything.
  const ContentionSet copy(1ul << static_cast<int>(Contention::kWithCopy));
  const std::vector<ContentionSet> beside = PossibleContention(graph.graph());
  EXPECT_EQ(beside[0], copy);
  EXPECT_EQ(beside[2], copy);
  EXPECT_TRUE(beside[3].test(static_cast<int>(Contention::kWithAllToAll)));
  EXPECT_TRUE(beside[3].test(static_cast<int>(Contention::kWithAllGather)));
}

// Beside each other are two tasks that no chain of dependencies and stream neighbours connects: Warshall's closure.
std::vector<ContentionSet> ContentionByClosure(const TaskGraph& graph) {
  const size_t count = graph.tasks.size();
  std::vector<std::vector<bool>> before(count, std::vector<bool>(count));
  for (size_t j = 0; j < count; ++j) {
    for (const TaskId i : graph.tasks[j].dependencies) before[i][j] = true;
    for (size_t i = 0; i < j; ++i) before[i][j] = before[i][j] || graph.tasks[i].stream == graph.tasks[j].stream;
  }
  for (size_t k = 0; k < count; ++k) {
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < count; ++j) before[i][j] = before[i][j] || (before[i][k] && before[k][j]);
    }
  }
  std::vector<ContentionSet> beside(count);
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < count; ++j) {
      const bool both_cost = CostOf(graph.tasks[i], graph) && CostOf(graph.tasks[j], graph);
      if (i == j || before[i][j] || before[j][i] || !both_cost) continue;
      beside[i].set(static_cast<int>(Imposed(graph.tasks[j])));
    }
  }
  return beside;
}

TEST(PriceTest, PossibleContentionAgreesWithTheTransitiveClosureOnRandomGraphs) {
  const unsigned seed = 11;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&](int limit) { return std::uniform_int_distribution(0, limit - 1)(random); };
  for (int round = 0; round < 300; ++round) {
    HandMadeGraph graph(kLayer, kLayout, kGpus);
    for (TaskId id = 0; id < 1 + round % 25; ++id) {
      std::vector<TaskId> after;
      for (TaskId before = 0; before < id; ++before) {
        if (below(6) == 0) after.push_back(before);
      }
      constexpr TaskKind kKinds[] = {TaskKind::kAllToAll, TaskKind::kAllGather, TaskKind::kCopy, TaskKind::kExpert};
      graph.Add(kKinds[below(4)], static_cast<StreamKind>(below(kStreamKinds)), /*size=*/below(3), CopyOp{0, 0}, after);
    }
    ASSERT_EQ(PossibleContention(graph.graph()), ContentionByClosure(graph.graph())) << "round " << round;
  }
}

TEST(MemoryTest, WeightsOfTheLocalExpertShardsAndEveryBuffer) {
  // 4 experts over EP 4: one; 2 matrices of 8 × 16/2, 2 bytes each: 256 bytes. One buffer of 3 cells · 5 rows · 16.
  TaskGraph graph{.layer = kLayer, .layout = kLayout};
  graph.buffers.push_back({.name = "rows", .cells = {{Axis::kExpert, 3}}, .rows_per_cell = 5, .row_bytes = 16});
  EXPECT_EQ(ExpertWeightBytes(kLayer, kLayout), 256);
  EXPECT_EQ(MemoryBytes(graph), 256 + 240);
}

TEST(MemoryTest, BiasesAndTheSharedExpertCountToo) {
  Layer layer = kLayer;
  layer.expert_bias = true;
  EXPECT_EQ(ExpertWeightBytes(layer, kLayout), 256 + (8 + 8) * 2);  // 16/2 after the first matrix, 8 after the last.
  layer.expert_bias = false;
  layer.shared_hidden_dim = 12;
  EXPECT_EQ(ExpertWeightBytes(layer, kLayout), 256 + 2 * 8 * 6 * 2);  // 2 matrices of 8 × 12/2.
}

}  // namespace
}  // namespace moeplan
