// Shares, filled slots and the rows of slices, against counts that are added up one by one.
#include "models/routing/expert_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "models/schedule/schedules.h"
#include "models/workload/groups.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 64 tokens, top 2: 128 pairs; 4 experts: T = 32·f.
Workload RoutedWorkload(std::optional<ExpertRouting> routing, double capacity_factor = 1) {
  Workload workload;
  workload.layer = {.batch = 1,
                    .sequence_length = 64,
                    .model_dim = 8,
                    .hidden_dim = 16,
                    .experts = 4,
                    .top_k = 2,
                    .capacity_factor = capacity_factor};
  workload.layout = {.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2};
  workload.min_chunk_bytes = 1;
  workload.routing = std::move(routing);
  return workload;
}
constexpr Cluster kCluster = {.nodes = 2, .gpus_per_node = 2};

ExpertRouting Counts(std::vector<double> tokens_per_expert) { return {std::move(tokens_per_expert), std::nullopt}; }
ExpertRouting Skew(double skew) { return {{}, skew}; }

TEST(ExpertLoadTest, SharesAreCountsOverTheirSumWhateverTheScale) {
  EXPECT_THAT(ExpertShares(RoutedWorkload(Counts({4, 2, 1, 1}))), ElementsAre(0.5, 0.25, 0.125, 0.125));
  EXPECT_THAT(ExpertShares(RoutedWorkload(Counts({4e300, 2e300, 1e300, 1e300}))),
              ElementsAre(DoubleEq(0.5), DoubleEq(0.25), DoubleEq(0.125), DoubleEq(0.125)));
  EXPECT_THAT(ExpertShares(RoutedWorkload(Counts({1e308, 1e308, 0, 1e308}))),
              ElementsAre(DoubleEq(1 / 3.), DoubleEq(1 / 3.), 0, DoubleEq(1 / 3.)));
  EXPECT_THAT(ExpertShares(RoutedWorkload(std::nullopt)), ElementsAre(0.25, 0.25, 0.25, 0.25));
}

TEST(ExpertLoadTest, SkewIsZipfsExponent) {
  // 1, 1/2, 1/3, 1/4 over 25/12.
  EXPECT_THAT(ExpertShares(RoutedWorkload(Skew(1))),
              ElementsAre(DoubleEq(12 / 25.), DoubleEq(6 / 25.), DoubleEq(4 / 25.), DoubleEq(3 / 25.)));
  EXPECT_THAT(ExpertShares(RoutedWorkload(Skew(0))), ElementsAre(0.25, 0.25, 0.25, 0.25));
  EXPECT_THAT(ExpertShares(RoutedWorkload(Skew(1e300))), ElementsAre(1, 0, 0, 0));
}

TEST(ExpertLoadTest, SlotsFillUpToTheCapacityAndTheRestIsDropped) {
  const Workload workload = RoutedWorkload(Counts({4, 2, 1, 1}), 1.25);  // 64 32 16 16 pairs, T = 40.
  EXPECT_THAT(ExpertPairs(workload), ElementsAre(64, 32, 16, 16));
  EXPECT_THAT(FilledSlots(workload), ElementsAre(40, 32, 16, 16));
  EXPECT_EQ(DroppedShare(workload), 24.0 / 128);
  EXPECT_EQ(DroppedShare(RoutedWorkload(Counts({4, 2, 1, 1}), 2)), 0);
}

TEST(ExpertLoadTest, NoExpertGetsATokenTwice) {
  const Workload workload = RoutedWorkload(Counts({1, 0, 0, 0}), 4);  // T = 128, 64 tokens.
  EXPECT_THAT(FilledSlots(workload), ElementsAre(64, 0, 0, 0));
  EXPECT_EQ(DroppedShare(workload), 0.5);
}

// Walks all ranks of a stage: slice by slice each expert's slots are taken, and every row goes to the shards of its
// expert's rank in the sender's group.
SliceRows WalkedRows(const Workload& workload, int stage_ranks) {
  const Layout& layout = workload.layout;
  const LayerSizes sizes = SizesOf(workload.layer, layout);
  const int slices = layout.tensor_parallel, experts = workload.layer.experts;
  const std::vector<double> pairs = ExpertPairs(workload);
  std::vector<double> sent(stage_ranks, 0), received(stage_ranks, 0);
  for (int rank = 0; rank < stage_ranks; ++rank) {
    for (int expert = 0; expert < experts; ++expert) {
      const double own = std::min(pairs[expert], sizes.tokens) / slices;
      const double before = own * (rank % slices);
      const double kept = std::clamp(sizes.slots - before, 0.0, own);
      sent[rank] += kept;
      for (const int member : MembersOf(Group::kExpertShard, layout, rank)) {
        const int holder = IndexIn(Group::kExpertShard, layout, member) / layout.expert_sharding_parallel;
        if (expert / (experts / layout.expert_parallel) == holder) received[member] += kept;
      }
    }
  }
  return {std::ranges::max(sent), std::ranges::max(received)};
}

TEST(ExpertLoadTest, TheBusiestRankIsThatOfAWalkOverAllRanks) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 3000; ++i) {
    Workload workload = RoutedWorkload(std::nullopt, std::uniform_real_distribution(0.2, 4.0)(random));
    Layout& layout = workload.layout;
    layout = {.tensor_parallel = 1 << random() % 4,
              .expert_parallel = 1 << random() % 3,
              .expert_sharding_parallel = 1 << random() % 3};
    if (random() % 4 == 0) layout.tensor_parallel = 3;  // Neither divides the other.
    workload.layer.experts = layout.expert_parallel * (1 + static_cast<int>(random() % 3));
    workload.layer.top_k = 1 + static_cast<int>(random() % std::min(3, workload.layer.experts));
    workload.layer.sequence_length = 1 + static_cast<int>(random() % 100);
    std::vector<double> counts(workload.layer.experts);
    for (double& count : counts) count = std::pow(std::uniform_real_distribution(0.0, 1.0)(random), 4);
    workload.routing = Counts(counts);
    const SliceRows found = BusiestSliceRows(workload);
    const SliceRows walked = WalkedRows(
        workload, std::lcm(layout.tensor_parallel, layout.expert_parallel * layout.expert_sharding_parallel));
    EXPECT_NEAR(found.sent, walked.sent, 1e-9 * walked.sent);
    EXPECT_NEAR(found.received, walked.received, 1e-9 * walked.received);
  }
}

TEST(ExpertLoadTest, SharesOfRandomRoutingAddUpToOne) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 3000; ++i) {
    Workload workload = RoutedWorkload(std::nullopt);
    workload.layer.experts = 2 + static_cast<int>(random() % 300);
    if (i % 2 == 0) {
      workload.routing = Skew(std::pow(10.0, std::uniform_real_distribution(-3.0, 3.0)(random)));
    } else {
      std::vector<double> counts(workload.layer.experts);
      for (double& count : counts)
        count = random() % 3 == 0 ? 0 : std::pow(10.0, std::uniform_real_distribution(-300.0, 300.0)(random));
      counts[random() % counts.size()] = 1;
      workload.routing = Counts(std::move(counts));
    }
    const std::vector<double> shares = ExpertShares(workload);
    EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-12);
    EXPECT_GE(std::ranges::min(shares), 0);
  }
}

// ---- In graphs.

TaskGraph S1GraphOf(const Workload& workload, int partition_degree = 1) {
  const auto resolved = ResolveWorkload(workload, kCluster);
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  const auto graph =
      BuildSchedule({.family = Family::kParmS1, .partition_degree = partition_degree}, *resolved, kCluster);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return *graph;
}

double SizeOf(const TaskGraph& graph, const std::string& task) {
  const auto found = std::ranges::find(graph.tasks, task, &Task::name);
  EXPECT_NE(found, graph.tasks.end()) << task;
  return found == graph.tasks.end() ? -1 : found->size;
}

constexpr double kRowBytes = 16;
constexpr double kRowFlops = 2.0 * 2 * 8 * 8;  // 2·matrices·M·H/N_ESP.

TEST(RoutedGraphTest, S1TakesTheTimeOfTheRankThatReceivesMost) {
  // 64 32 16 16 pairs, none dropped (T = 64): rank 0 holds 96 of 128. Each of its two slices comes from both batches of
  // the group: 4 senders of 48 rows.
  const TaskGraph graph = S1GraphOf(RoutedWorkload(Counts({4, 2, 1, 1}), 2));
  EXPECT_EQ(SizeOf(graph, "dispatch"), 64 * kRowBytes);  // A slice's 32 tokens, twice.
  EXPECT_EQ(SizeOf(graph, "dispatch_a2a"), 4 * 48 * kRowBytes);
  EXPECT_EQ(SizeOf(graph, "expert"), 4 * 48 * kRowFlops);
  EXPECT_EQ(SizeOf(graph, "combine_a2a"), 4 * 48 * kRowBytes);
  EXPECT_EQ(SizeOf(graph, "sum_shards"), 2 * 64 * kRowBytes);
  EXPECT_EQ(SizeOf(S1GraphOf(RoutedWorkload(Counts({4, 2, 1, 1}), 2), 4), "expert.2"), 48 * kRowFlops);
  EXPECT_EQ(SizeOf(S1GraphOf(RoutedWorkload(Counts({4, 1, 1, 2}), 2)), "expert"), 4 * 40 * kRowFlops)
      << "experts 0 and 1 are rank 0's";
}

TEST(RoutedGraphTest, TheFirstSliceSendsMostWhereMuchIsDropped) {
  // T = 16 and 32 pairs for each of experts 0 and 2, 31 and 33 for the others: every slot is taken by the first slice.
  const TaskGraph graph = S1GraphOf(RoutedWorkload(Counts({32, 31, 32, 33}), 0.5));
  EXPECT_EQ(SizeOf(graph, "dispatch"), (16 + 15.5 + 16 + 16) * kRowBytes);
  EXPECT_EQ(SizeOf(graph, "expert"), 2 * (16 + 16) * kRowFlops);
  EXPECT_EQ(SizeOf(graph, "dispatch_a2a"), 2 * (16 + 15.5 + 16 + 16) * kRowBytes) << "to both shards";
}

TEST(RoutedGraphTest, WhatIsPaddedDoesNotFollowTheRouting) {
  for (const Family family : {Family::kBaseline, Family::kBaselineTp, Family::kParmS2, Family::kMontaO1,
                              Family::kMontaO2, Family::kPipeline, Family::kParmS1}) {
    Workload even = RoutedWorkload(std::nullopt, 1.25), uneven = RoutedWorkload(Counts({4, 2, 1, 1}), 1.25);
    even.capacity_passing = uneven.capacity_passing = CapacityPassing::kPadded;
    const auto graph = [&](const Workload& workload) {
      return BuildSchedule({.family = family}, *ResolveWorkload(workload, kCluster), kCluster);
    };
    EXPECT_EQ(*graph(even), *graph(uneven)) << Name(family);
  }
}

TEST(RoutedGraphTest, EvenRoutingGivesTheGraphOfNone) {
  for (const double capacity_factor : {0.5, 0.9, 1.0, 1.7}) {
    const TaskGraph none = S1GraphOf(RoutedWorkload(std::nullopt, capacity_factor));
    EXPECT_DOUBLE_EQ(SizeOf(none, "expert"), 4 * 32 * std::min(capacity_factor, 1.0) * kRowFlops)
        << "min(1, 1/f)·y/N_MP";
    EXPECT_EQ(S1GraphOf(RoutedWorkload(Counts({7, 7, 7, 7}), capacity_factor)), none);
    EXPECT_EQ(S1GraphOf(RoutedWorkload(Skew(0), capacity_factor)), none);
  }
}

TEST(RoutedGraphTest, AlmostEvenRoutingIsPricedAlmostAsEvenWhileNothingIsDropped) {
  for (const double capacity_factor : {1.1, 1.7}) {
    const TaskGraph none = S1GraphOf(RoutedWorkload(std::nullopt, capacity_factor));
    const TaskGraph almost = S1GraphOf(RoutedWorkload(Skew(1e-9), capacity_factor));
    for (size_t i = 0; i < none.tasks.size(); ++i)
      EXPECT_NEAR(almost.tasks[i].size, none.tasks[i].size, 1e-6 * none.tasks[i].size) << none.tasks[i].name;
  }
}

// ---- Errors.

std::string ErrorOf(const Workload& workload) {
  const auto resolved = ResolveWorkload(workload, kCluster);
  EXPECT_EQ(resolved.status().code(), StatusCode::kInvalidInput);
  return resolved.status().message();
}

TEST(RoutingTest, ErrorsNameTheFieldWhatWasFoundAndWhatWasExpected) {
  EXPECT_EQ(ErrorOf(RoutedWorkload(Counts({1, 2, 3}))),
            "routing.tokensPerExpert: found 3 counts, expected one for each of layer.experts, which is 4");
  EXPECT_EQ(ErrorOf(RoutedWorkload(Counts({1, 2, -3, 1}))),
            "routing.tokensPerExpert[2]: found -3, expected a finite number of at least 0");
  EXPECT_THAT(ErrorOf(RoutedWorkload(Counts({1, NAN, 3, 1}))), HasSubstr("routing.tokensPerExpert[1]: found nan"));
  EXPECT_EQ(ErrorOf(RoutedWorkload(Counts({0, 0, 0, 0}))),
            "routing.tokensPerExpert: found only zeros, expected at least one count above 0");
  EXPECT_EQ(ErrorOf(RoutedWorkload(Skew(-1))), "routing.skew: found -1, expected a finite number of at least 0");
  EXPECT_THAT(ErrorOf(RoutedWorkload(Skew(INFINITY))), HasSubstr("routing.skew: found inf"));
  EXPECT_EQ(ErrorOf(RoutedWorkload(ExpertRouting{})),
            "routing: found neither tokensPerExpert nor skew, expected exactly one of them");
  EXPECT_EQ(ErrorOf(RoutedWorkload(ExpertRouting{{1, 1, 1, 1}, 0.5})),
            "routing: found tokensPerExpert and skew, expected exactly one of them");
  Workload choosing = RoutedWorkload(Skew(1));
  choosing.layer.gate = GateKind::kExpertChoice;
  EXPECT_THAT(ErrorOf(choosing), HasSubstr("routing: found an object, expected none with gate EXPERT_CHOICE"));
  Workload many = RoutedWorkload(Skew(1));
  many.layer.experts = kMaxRoutedExperts + 2;
  EXPECT_EQ(ErrorOf(many), "layer.experts: found 65538, expected at most 65536 with routing");
}

// The most pairs that an expert has in any of so many batches, drawn.
int DrawnBusiest(const Workload& workload, int batches, std::mt19937_64& engine) {
  const std::vector<double> pairs = ExpertPairs(workload);
  const int tokens = static_cast<int>(SizesOf(workload.layer, workload.layout).tokens);
  int busiest = 0;
  for (int batch = 0; batch < batches; ++batch) {
    for (const double mean : pairs)
      busiest = std::max(busiest, std::binomial_distribution(tokens, std::min(1.0, mean / tokens))(engine));
  }
  return busiest;
}

TEST(ExpertLoadTest, DroplessLayersHaveTheSlotsThatDrawnBatchesNeed) {
  std::mt19937_64 engine(TestSeed());
  // Four source batches of all tokens, or two of half of them each, as tensor and context parallel ranks have.
  const std::pair<Layout, int> layouts[] = {{{.expert_parallel = 4}, 4},
                                            {{.tensor_parallel = 2, .expert_parallel = 4, .context_parallel = 2}, 2}};
  for (const auto& [layout, batches] : layouts) {
    for (const int sequence_length : {256, 1024, 16384}) {
      for (const std::optional<ExpertRouting>& routing : {std::optional<ExpertRouting>(), {Skew(0.2)}, {Skew(0.7)}}) {
        Workload workload = RoutedWorkload(routing, /*capacity_factor=*/0);
        workload.layer.sequence_length = sequence_length;
        workload.layer.experts = 16;
        workload.layout = layout;
        workload = *ResolveWorkload(workload, kCluster);
        double drawn = 0;
        constexpr int kDraws = 200;
        for (int i = 0; i < kDraws; ++i) drawn += RoundedSlots(DrawnBusiest(workload, batches, engine));
        EXPECT_NEAR(WithExpectedSlots(workload).layer.counted_slots * kDraws, drawn, 0.05 * drawn) << sequence_length;
      }
    }
  }
}

TEST(ExpertLoadTest, SlotsOfDroplessLayersByHand) {
  // 4 batches of 64 tokens, 4 experts, top 2: a mean of 32 and a deviation of 4; the most of 16 normal values is 1.766.
  Workload workload = RoutedWorkload(std::nullopt, /*capacity_factor=*/0);
  workload.layout = {.expert_parallel = 4};
  workload = *ResolveWorkload(workload, kCluster);
  EXPECT_EQ(WithExpectedSlots(workload).layer.counted_slots, 40);  // 39.06, in steps of two.
  workload.layer.receive_factor = 1.125;
  EXPECT_EQ(WithExpectedSlots(workload).layer.counted_slots, 36);
  workload.layer.receive_factor = 0;
  workload.layer.experts = workload.layer.top_k = 1;  // Every token's.
  EXPECT_EQ(WithExpectedSlots(workload).layer.counted_slots, 64);
}

// The most that a layer may have is answered like any other, and at once.
TEST(ExpertLoadTest, SlotsOfVeryManyExpertsAndRanks) {
  Workload workload = RoutedWorkload(std::nullopt, /*capacity_factor=*/0);
  workload.layer.experts = 1 << 30;
  workload.layout = {};
  workload = *ResolveWorkload(workload, {.nodes = 1 << 21, .gpus_per_node = 8});
  EXPECT_GE(WithExpectedSlots(workload).layer.counted_slots, 1);
  Workload routed = RoutedWorkload(std::nullopt, /*capacity_factor=*/0);
  routed.layer.experts = kMaxRoutedExperts;
  routed.layout = {};
  ExpertRouting counts;
  for (int expert = 0; expert < kMaxRoutedExperts; ++expert) counts.tokens_per_expert.push_back(1 + 1e-6 * expert);
  routed.routing = counts;
  routed = *ResolveWorkload(routed, {.nodes = 1, .gpus_per_node = 1});
  EXPECT_GE(WithExpectedSlots(routed).layer.counted_slots, 1);
}

TEST(ExpertLoadTest, SlotsAreRoundedUpByASixteenthAtMost) {
  for (int needed = 1; needed < 5000; ++needed) {
    const int rounded = RoundedSlots(needed);
    ASSERT_GE(rounded, needed);
    ASSERT_LE(rounded, needed + needed / 16);
    ASSERT_EQ(RoundedSlots(rounded), rounded);
  }
  EXPECT_EQ(RoundedSlots(33), 34);
}

}  // namespace
}  // namespace moeplan
