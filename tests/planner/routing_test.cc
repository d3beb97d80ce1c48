// What balancing would gain: placements and copies against every other one, and the report against plans of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "models/routing/expert_load.h"
#include "models/schedule/schedules.h"
#include "models/text.h"
#include "planner/routing/place_experts.h"
#include "planner/routing/plan_routed_layer.h"
#include "planner/wording.h"
#include "tests/planner/by_hand.h"
#include "tests/test_seed.h"

namespace moeplan::planner {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// ---- Placement.

double BusiestLoad(std::span<const double> loads, const std::vector<int>& physical_to_logical, int ranks) {
  std::vector<double> ordered;
  for (const int expert : physical_to_logical) ordered.push_back(loads[expert]);
  return std::ranges::max(RankLoads(ordered, ranks));
}

// Of every assignment with as many experts on each rank.
double LeastBusiestLoad(std::span<const double> loads, int ranks) {
  const size_t room = loads.size() / ranks;
  std::vector<double> rank_loads(ranks, 0);
  std::vector<size_t> held(ranks, 0);
  double least = std::numeric_limits<double>::infinity();
  const std::function<void(size_t)> place = [&](size_t expert) {
    if (expert == loads.size()) {
      least = std::min(least, std::ranges::max(rank_loads));
      return;
    }
    for (int rank = 0; rank < ranks; ++rank) {
      if (held[rank] == room) continue;
      const double before = rank_loads[rank];
      ++held[rank];
      rank_loads[rank] += loads[expert];
      place(expert + 1);
      rank_loads[rank] = before;
      --held[rank];
    }
  };
  place(0);
  return least;
}

std::vector<double> RandomLoads(std::mt19937_64& random, size_t experts) {
  const int kind = static_cast<int>(random() % 4);
  std::vector<double> loads(experts);
  for (double& load : loads) {
    const double uniform = std::uniform_real_distribution(0.0, 1.0)(random);
    if (kind == 0) load = uniform;
    if (kind == 1) load = static_cast<double>(random() % 4);  // Ties, and experts without load.
    if (kind == 2) load = std::pow(uniform, 6) * 1e6;
    if (kind == 3) load = random() % 5 == 0 ? 1e9 * uniform : uniform;
  }
  return loads;
}

void ExpectEachOnce(std::vector<int> physical_to_logical, size_t experts) {
  std::ranges::sort(physical_to_logical);
  std::vector<int> all(experts);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(physical_to_logical, all);
}

TEST(PlaceExpertsTest, TheBusiestExpertsGoToDifferentRanks) {
  // 8 + 1, 7 + 2, 6 + 3: 9 each, which is the mean.
  const Placement placement = PlaceExperts(std::vector<double>{8, 7, 6, 1, 2, 3}, 3);
  EXPECT_EQ(placement.busiest_load, 9);
  EXPECT_EQ(placement.busiest_load_floor, 9);
  EXPECT_THAT(placement.physical_to_logical, UnorderedElementsAre(0, 1, 2, 3, 4, 5));
}

// Nobody is less busy than the bound; with few steps a placement stays just above it, and more find one that reaches
// it.
void ExpectBoundReached(const std::vector<double>& loads, int ranks, double bound, double with_few_steps) {
  ASSERT_EQ(LeastBusiestLoad(loads, ranks), bound);
  ASSERT_LT(std::accumulate(loads.begin(), loads.end(), 0.0) / ranks, bound) << "the mean is not what counts here";
  const Placement few = PlaceExperts(loads, ranks, /*budget_nodes=*/1);
  EXPECT_EQ(few.busiest_load, with_few_steps);
  EXPECT_EQ(few.busiest_load_floor, bound);
  const Placement many = PlaceExperts(loads, ranks);
  EXPECT_EQ(many.busiest_load, bound);
  EXPECT_EQ(many.busiest_load_floor, bound);
}

TEST(PlaceExpertsTest, TheBusiestExpertBesideTheIdlestReachesTheBound) {
  // Three experts on each rank, so that the busiest, 102, has at least 0 and 5 beside it: 107. The others fit below:
  // 71 + 6 + 6 = 83 and 38 + 35 + 32 = 105. Busiest first, 6 goes to the 102 and 5 to 71 + 32: 108 on both.
  ExpectBoundReached({71, 0, 6, 102, 38, 5, 6, 32, 35}, 3, /*bound=*/102 + 0 + 5, /*with_few_steps=*/108);
}

TEST(PlaceExpertsTest, TwoOfTheBusyExpertsOnOneRankReachTheBound) {
  // Four ranks of four. One of them holds two of the five busiest, 157, 137, 125, 118 and 85: at least 118 + 85 = 203,
  // with nothing but experts of no load beside them. The others fit below: 157 + 27 + 8 + 8 = 200,
  // 137 + 62 + 1 + 1 = 201, 125 + 49 + 20 + 0 = 194. Busiest first, the 157 gets 27 and 20: 204.
  ExpectBoundReached({0, 137, 85, 1, 118, 0, 27, 125, 8, 8, 0, 49, 157, 20, 1, 62}, 4, /*bound=*/118 + 85,
                     /*with_few_steps=*/204);
}

TEST(PlaceExpertsTest, NoAssignmentHasALessBusyRank) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 20000; ++i) {
    const int ranks = 1 + static_cast<int>(random() % 4);
    const std::vector<double> loads = RandomLoads(random, ranks * (1 + random() % (ranks > 2 ? 2 : 4)));
    SCOPED_TRACE(::testing::PrintToString(loads));
    const Placement placement = PlaceExperts(loads, ranks);
    ExpectEachOnce(placement.physical_to_logical, loads.size());
    const double busiest = BusiestLoad(loads, placement.physical_to_logical, ranks);
    const double least = LeastBusiestLoad(loads, ranks);
    EXPECT_NEAR(placement.busiest_load, busiest, 1e-9 * busiest);
    EXPECT_NEAR(busiest, least, 1e-9 * least);
    EXPECT_EQ(placement.busiest_load_floor, placement.busiest_load) << "proved";
  }
}

TEST(PlaceExpertsTest, WithoutBudgetTheBoundHoldsAndSwapsHelp) {
  std::mt19937_64 random(TestSeed());
  double sum_of_gaps = 0;
  constexpr int kCases = 20000;
  for (int i = 0; i < kCases; ++i) {
    const int ranks = 2 + static_cast<int>(random() % 3);
    const std::vector<double> loads = RandomLoads(random, ranks * (1 + random() % (ranks > 2 ? 2 : 4)));
    const Placement placement = PlaceExperts(loads, ranks, /*budget_nodes=*/1);
    const double least = LeastBusiestLoad(loads, ranks);
    EXPECT_LE(placement.busiest_load_floor, least * (1 + 1e-9));
    EXPECT_GE(placement.busiest_load, least * (1 - 1e-9));
    ExpectEachOnce(placement.physical_to_logical, loads.size());
    if (least > 0) sum_of_gaps += placement.busiest_load / least - 1;
  }
  EXPECT_LT(sum_of_gaps / kCases, 0.01) << "longest first and swaps stay near the best";
}

TEST(PlaceExpertsTest, ManyExpertsTakeNoLongAndComeCloseToTheBound) {
  std::mt19937_64 random(TestSeed());
  for (const int ranks : {2, 8, 64, 256}) {
    std::vector<double> loads(16384);
    for (size_t i = 0; i < loads.size(); ++i) loads[i] = 1e6 / std::pow(i + 1.0, 0.5) * (0.5 + random() % 1000 / 1e3);
    const Placement placement = PlaceExperts(loads, ranks);
    ExpectEachOnce(placement.physical_to_logical, loads.size());
    EXPECT_LE(placement.busiest_load, 1.01 * placement.busiest_load_floor)
        << ranks << " " << placement.busiest_load / placement.busiest_load_floor;
  }
}

// ---- Copies.

TEST(CopiesOfExpertsTest, TheBusiestCopyIsHalvedFirst) {
  // 12: 12 → 6 6 → then 7 → 3.5 3.5 → then 6 6 → 4 4 4.
  const std::vector<double> loads = {12, 7, 1};
  EXPECT_THAT(CopiesOfExperts(loads, 1, 4), ElementsAre(2, 1, 1));
  EXPECT_THAT(CopiesOfExperts(loads, 2, 4), ElementsAre(2, 2, 1));
  EXPECT_THAT(CopiesOfExperts(loads, 3, 4), ElementsAre(3, 2, 1));
  EXPECT_THAT(CopiesOfExperts(loads, 3, 2), ElementsAre(2, 2, 2)) << "no more copies than asked for";
  EXPECT_THAT(CopiesOfExperts(std::vector<double>{5, 5}, 1, 2), ElementsAre(2, 1)) << "ties go to the lower expert";
}

TEST(CopiesOfExpertsTest, NoAllocationHasALessBusyCopy) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 3000; ++i) {
    const std::vector<double> loads = RandomLoads(random, 1 + random() % 5);
    const int most = 2 + static_cast<int>(random() % 3);
    const int extra = static_cast<int>(random() % ((most - 1) * loads.size() + 1));
    const std::vector<int> copies = CopiesOfExperts(loads, extra, most);
    EXPECT_EQ(std::accumulate(copies.begin(), copies.end(), 0), static_cast<int>(loads.size()) + extra);
    EXPECT_LE(std::ranges::max(copies), most);
    EXPECT_GE(std::ranges::min(copies), 1);
    double found = 0;
    for (size_t expert = 0; expert < loads.size(); ++expert) found = std::max(found, loads[expert] / copies[expert]);
    double least = std::numeric_limits<double>::infinity();
    const std::function<void(size_t, int, double)> allocate = [&](size_t expert, int left, double busiest) {
      if (expert == loads.size()) {
        if (left == 0) least = std::min(least, busiest);
        return;
      }
      for (int more = 0; more <= std::min(left, most - 1); ++more)
        allocate(expert + 1, left - more, std::max(busiest, loads[expert] / (1 + more)));
    };
    allocate(0, extra, 0);
    EXPECT_EQ(found, least);
  }
}

// ---- The report. 2 nodes of 2 ranks, MP 2 inside a node; 4·512 tokens, k = 2: 4,096 pairs; 8 experts: T = 512·f.

Workload RoutedWorkload(std::vector<double> tokens_per_expert) {
  Workload workload;
  workload.layer = {.batch = 4,
                    .sequence_length = 512,
                    .model_dim = 256,
                    .hidden_dim = 512,
                    .experts = 8,
                    .top_k = 2,
                    .capacity_factor = 1.5};
  workload.layout = {.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2};
  workload.min_chunk_bytes = 65536;
  if (!tokens_per_expert.empty()) workload.routing = ExpertRouting{std::move(tokens_per_expert), std::nullopt};
  return workload;
}

// Where exact S1 is best: to gather slots over MP is dear.
Profile SlowGatherProfile() {
  Profile profile;
  profile.name = "two-by-two";
  profile.cluster = {.nodes = 2, .gpus_per_node = 2};
  profile.collectives = {Line(Over(Collective::kAllToAll, {2, 1}), 2e-5, 1e-9),
                         Line(Over(Collective::kAllToAll, {4, 2}), 3e-5, 1e-9),
                         Line(Over(Collective::kAllGather, {2, 2}), 1e-5, 2e-9),
                         Line(Over(Collective::kReduceScatter, {2, 2}), 1e-5, 2e-9),
                         Line(Over(Collective::kAllReduce, {2, 2}), 1e-5, 4e-9)};
  profile.kernels = {Line(Kernel::kExpertGemm, 1e-5, 1e-12), Line(Kernel::kGate, 5e-6, 1e-11),
                     Line(Kernel::kPermute, 5e-6, 1e-11), Line(Kernel::kDeviceCopy, 5e-6, 1e-11)};
  return profile;
}

PlanAnswer Answer(const Workload& workload) {
  const auto answer = PlanRoutedLayer(workload, SlowGatherProfile());
  EXPECT_TRUE(answer.ok()) << answer.status().message();
  return answer.ok() ? *answer : PlanAnswer{};
}

double S1Time(const PlanAnswer& answer) {
  for (const Plan& plan : answer.candidates) {
    if (plan.knobs.family == Family::kParmS1 && plan.knobs.partition_degree == 1) return plan.predicted_time_s;
  }
  ADD_FAILURE() << "no S1";
  return 0;
}

TEST(PlanRoutedLayerTest, EvenRoutingIsPricedAsNone) {
  const PlanAnswer none = Answer(RoutedWorkload({}));
  EXPECT_FALSE(none.routing);
  for (const double capacity_factor : {0.7, 1.0, 1.5}) {
    Workload plain = RoutedWorkload({}), even = RoutedWorkload(std::vector<double>(8, 3.5)), unskewed = plain;
    unskewed.routing = ExpertRouting{.tokens_per_expert = {}, .skew = 0};
    for (Workload* one : {&plain, &even, &unskewed}) one->layer.capacity_factor = capacity_factor;
    EXPECT_EQ(Answer(even).candidates, Answer(plain).candidates);
    EXPECT_EQ(Answer(unskewed).candidates, Answer(plain).candidates);
  }
  const RoutingReport report = *Answer(RoutedWorkload(std::vector<double>(8, 3.5))).routing;
  EXPECT_EQ(report.busiest_expert_ratio, 1);
  EXPECT_EQ(report.busiest_rank_ratio, 1);
  EXPECT_EQ(report.dropped_share, 0);
  EXPECT_EQ(report.capacity.capacity_factor, 1);
}

TEST(PlanRoutedLayerTest, ReportsWhatIsWorkedOutByHand) {
  // Of 4,096 pairs: 1024 1024 512 512 | 256 256 256 256. T = 768: 256 are dropped twice, 512 of 4,096 in all.
  // Filled: 768 768 512 512 | 256 ·4: 2,560 and 1,024 of 3,584, so 2560 / 1792.
  const PlanAnswer answer = Answer(RoutedWorkload({4, 4, 2, 2, 1, 1, 1, 1}));
  ASSERT_TRUE(answer.routing);
  const RoutingReport& report = *answer.routing;
  EXPECT_DOUBLE_EQ(report.busiest_expert_ratio, 2);
  EXPECT_DOUBLE_EQ(report.busiest_rank_ratio, 2560.0 / 1792);
  EXPECT_DOUBLE_EQ(report.dropped_share, 512.0 / 4096);
  EXPECT_DOUBLE_EQ(report.capacity.capacity_factor, 2);  // 8 experts · 1/4.
  EXPECT_EQ(report.capacity.slots, 1024);
  ASSERT_TRUE(report.placement);
  EXPECT_DOUBLE_EQ(report.placement->busiest_rank_ratio, 1);  // 768 + 512 + 256 + 256 on each.
  EXPECT_EQ(report.placement->busiest_rank_ratio_floor, report.placement->busiest_rank_ratio);
  ASSERT_TRUE(report.replicas);
  EXPECT_THAT(report.replicas->copies, ElementsAre(2, 2, 1, 1, 1, 1, 1, 1));
  EXPECT_EQ(report.replicas->dropped_share, 0);                           // No copy has more than 512.
  EXPECT_DOUBLE_EQ(report.replicas->busiest_rank_ratio, 1);               // 3·512 + 2·256 on each.
  EXPECT_EQ(report.replicas->extra_weight_bytes, 2 * 256 * 512 / 2 * 2);  // Two matrices, cut to H/2, of BF16.
}

TEST(PlanRoutedLayerTest, ADroplessLayerIsPricedByItsBusiestExpert) {
  for (const auto& [routed, factor] :
       {std::pair(std::vector<double>{4, 4, 2, 2, 1, 1, 1, 1}, 2.0), std::pair(std::vector<double>{}, 1.0),
        std::pair(std::vector<double>{1, 0, 0, 0, 0, 0, 0, 0}, 4.0)}) {
    Workload dropless = RoutedWorkload(routed), sized = dropless;
    dropless.layer.capacity_factor = 0;
    dropless.layer.receive_factor = 4;
    const Workload counted = WithExpectedSlots(Resolved(dropless, SlowGatherProfile().cluster));
    sized.layer.capacity_factor = CapacityFactorOf(counted.layer, counted.layout);
    EXPECT_GE(sized.layer.capacity_factor, factor < 4 ? 1.02 * factor : factor) << "batches stray from the mean";
    EXPECT_LT(sized.layer.capacity_factor, 1.4 * factor);
    const PlanAnswer answer = Answer(dropless), expected = Answer(sized);
    if (!routed.empty()) {
      EXPECT_EQ(answer.candidates, expected.candidates);
    }
    int compared = 0;
    for (const Plan& plan : answer.candidates) {
      const auto same = std::ranges::find(expected.candidates, plan.knobs, &Plan::knobs);
      if (same == expected.candidates.end()) continue;
      const double ratio = plan.predicted_time_s / same->predicted_time_s;
      // An even router's rows, where they alone are sent, are those of the rank that chance gives the most.
      const bool has_rows_alone = routed.empty() && plan.knobs.family == Family::kParmS1;
      EXPECT_GE(ratio, has_rows_alone ? 1.0005 : 1) << Name(plan.knobs.family);
      EXPECT_LE(ratio, has_rows_alone ? 1.05 : 1) << Name(plan.knobs.family);
      if (has_rows_alone == routed.empty()) ++compared;
    }
    EXPECT_GT(compared, 0) << "no schedule that differs was looked at";
    EXPECT_EQ(answer.workload.layer.capacity_factor, 0);
    EXPECT_EQ(answer.workload.layer.receive_factor, 4);
    EXPECT_THAT(answer.warnings, ::testing::Contains(HasSubstr(
                                     StrCat("take f = 1, candidates f = ", ThreeDigits(sized.layer.capacity_factor)))));
    EXPECT_THAT(expected.warnings, ::testing::Not(::testing::Contains(HasSubstr("dropless"))));
    if (!answer.routing) continue;
    // No expert gets a token twice, and that is all that is dropped.
    EXPECT_EQ(answer.routing->dropped_share, routed[0] == 1 ? 0.5 : 0);
    EXPECT_EQ(answer.routing->replicas->dropped_share, answer.routing->dropped_share);
  }
}

// Padded slots are as many as the busiest expert needs; S1 sends the rows alone, even of one slice.
TEST(PlanRoutedLayerTest, S1OfADroplessLayerSendsNoEmptySlots) {
  Workload even = RoutedWorkload({});
  even.layout = {.expert_parallel = 4};
  even.layer.capacity_factor = 0;
  Workload skewed = even, padded = even;
  skewed.routing = padded.routing = ExpertRouting{{2, 0.5, 0.5, 1, 2, 0.5, 0.5, 1}, std::nullopt};
  padded.layer.capacity_factor = 2;
  // Ranks have 2.5 and 1.5 of 8 pairs each, where even ones have 2; slots have room for 4.
  const double even_s = S1Time(Answer(even)), skewed_s = S1Time(Answer(skewed)), padded_s = S1Time(Answer(padded));
  EXPECT_GT(skewed_s, even_s);
  EXPECT_LT(skewed_s, 0.9 * padded_s);
}

TEST(PlanRoutedLayerTest, CopiesHaveTheSlotsOfBefore) {
  const Workload workload = Resolved(RoutedWorkload({4, 4, 2, 2, 1, 1, 1, 1}), SlowGatherProfile().cluster);
  const Remedies remedies = RemediedWorkloads(workload);
  ASSERT_TRUE(remedies.replicas);
  EXPECT_EQ(remedies.replicas->layer.experts, 10);
  EXPECT_EQ(SizesOf(remedies.replicas->layer, workload.layout).slots, 768);
}

TEST(PlanRoutedLayerTest, TheTimeFollowsTheBusiestRankAndBalancingGainsIt) {
  const PlanAnswer even = Answer(RoutedWorkload({}));
  const PlanAnswer uneven = Answer(RoutedWorkload({4, 4, 2, 2, 1, 1, 1, 1}));
  ASSERT_EQ(even.candidates.front().knobs.family, Family::kParmS1) << "else nothing here depends on the routing";
  EXPECT_GT(S1Time(uneven), 1.05 * S1Time(even));
  ASSERT_TRUE(uneven.routing && uneven.routing->placement);
  EXPECT_LT(*uneven.routing->placement->predicted_time_s, 0.99 * uneven.candidates.front().predicted_time_s);
  for (const Plan& plan : uneven.candidates) {  // What is padded takes as long as ever.
    // Launch orders are searched only of what could be best, which the routing decides.
    if (plan.knobs.family == Family::kParmS1 || PiecesOf(plan.knobs) > 1) continue;
    const auto same = std::ranges::find(even.candidates, plan.knobs, &Plan::knobs);
    ASSERT_NE(same, even.candidates.end());
    EXPECT_EQ(plan, *same);
  }
}

TEST(PlanRoutedLayerTest, EveryTimeIsThatOfAPlanThatAnyoneCanAskFor) {
  const Workload workload = RoutedWorkload({9, 1, 7, 2, 2, 1, 5, 0});
  const RoutingReport report = *Answer(workload).routing;
  const auto best_s = [](const Workload& asked) { return Answer(asked).candidates.front().predicted_time_s; };

  Workload roomy = workload;
  roomy.layer.capacity_factor = report.capacity.capacity_factor;
  EXPECT_EQ(report.capacity.predicted_time_s, best_s(roomy));
  EXPECT_EQ(Answer(roomy).routing->dropped_share, 0);

  Workload placed = workload;
  for (size_t i = 0; i < 8; ++i)
    placed.routing->tokens_per_expert[i] =
        workload.routing->tokens_per_expert[report.placement->physical_to_logical[i]];
  EXPECT_NEAR(*report.placement->predicted_time_s, best_s(placed), 1e-12);
  EXPECT_NEAR(Answer(placed).routing->busiest_rank_ratio, report.placement->busiest_rank_ratio, 1e-12);

  Workload copied = workload;
  copied.layer.experts = 10;
  copied.layer.capacity_factor *= 10.0 / 8;
  copied.routing->tokens_per_expert.clear();
  for (const int expert : report.replicas->physical_to_logical) {
    copied.routing->tokens_per_expert.push_back(workload.routing->tokens_per_expert[expert] /
                                                report.replicas->copies[expert]);
  }
  EXPECT_NEAR(*report.replicas->predicted_time_s, best_s(copied), 1e-12);
  EXPECT_NEAR(Answer(copied).routing->dropped_share, report.replicas->dropped_share, 1e-12);
  EXPECT_NEAR(Answer(copied).routing->busiest_rank_ratio, report.replicas->busiest_rank_ratio, 1e-12);
}

TEST(PlanRoutedLayerTest, MoreSkewTakesMoreTimeWhileNothingIsDropped) {
  double before_s = 0;
  for (const double skew : {0.0, 0.1, 0.25, 0.5, 0.75, 1.0}) {
    Workload workload = RoutedWorkload({});
    workload.layer.capacity_factor = 4;  // T = 2,048: all tokens.
    workload.routing = ExpertRouting{.tokens_per_expert = {}, .skew = skew};
    const double time_s = S1Time(Answer(workload));
    if (skew > 0) {
      EXPECT_GT(time_s, before_s) << skew;
    }
    before_s = time_s;
  }
}

TEST(PlanRoutedLayerTest, SharesThatTopKCannotGiveAreNamed) {
  const PlanAnswer answer = Answer(RoutedWorkload({1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_THAT(answer.warnings,
              Contains(HasSubstr("routing gives expert 0 a share of 1 of the pairs, but with topK 2")));
  EXPECT_EQ(answer.routing->capacity.slots, 2048) << "an expert gets a token once";
}

TEST(PlanRoutedLayerTest, OneRankOfExpertsHasNothingToMove) {
  Workload workload = RoutedWorkload({4, 4, 2, 2, 1, 1, 1, 1});
  workload.layout.expert_parallel = 1;
  const RoutingReport report = RemediedWorkloads(Resolved(workload, {.nodes = 2, .gpus_per_node = 2})).report;
  EXPECT_EQ(report.busiest_rank_ratio, 1);
  EXPECT_FALSE(report.placement);
  EXPECT_FALSE(report.replicas);
}

TEST(PlanRoutedLayerTest, RandomHistogramsAreReportedInBounds) {
  std::mt19937_64 random(TestSeed());
  constexpr Cluster kCluster = {.nodes = 2, .gpus_per_node = 4};
  for (int i = 0; i < 1000; ++i) {
    const int ranks = 1 << random() % 3;
    Workload workload = RoutedWorkload({});
    workload.layout = {.tensor_parallel = 1 << random() % 3, .expert_parallel = ranks};
    workload.layer.experts = ranks * (1 + static_cast<int>(random() % 4));
    workload.layer.top_k = 1 + static_cast<int>(random() % std::min(3, workload.layer.experts));
    workload.layer.batch = 1 + static_cast<int>(random() % 3);
    workload.layer.sequence_length = 1 + static_cast<int>(random() % 60);
    workload.layer.capacity_factor = std::uniform_real_distribution(0.2, 3.0)(random);
    workload.routing = ExpertRouting{RandomLoads(random, workload.layer.experts), std::nullopt};
    workload.routing->tokens_per_expert[0] += 1e-300;  // Not all 0.
    const Workload resolved = Resolved(workload, kCluster);
    const Remedies remedies = RemediedWorkloads(resolved);
    const RoutingReport& report = remedies.report;
    const double slack = 1 + 1e-9;
    EXPECT_LE(1, report.busiest_expert_ratio * slack);
    EXPECT_LE(1, report.busiest_rank_ratio * slack);
    EXPECT_LE(report.busiest_rank_ratio, ranks * slack);
    EXPECT_GE(report.dropped_share, 0);
    EXPECT_LE(report.dropped_share, 1);
    // As many slots as the busiest expert has pairs, and no more.
    const double most =
        std::min(std::ranges::max(ExpertPairs(resolved)), SizesOf(resolved.layer, resolved.layout).tokens);
    EXPECT_GE(report.capacity.slots, most * (1 - 1e-9));
    EXPECT_LT(report.capacity.slots - 1, std::max(most, 0.5));
    if (report.placement) {
      EXPECT_LE(report.placement->busiest_rank_ratio, report.busiest_rank_ratio * slack);
      EXPECT_LE(report.placement->busiest_rank_ratio_floor, report.placement->busiest_rank_ratio);
      EXPECT_LE(report.replicas->dropped_share, report.dropped_share * slack + 1e-12);
    }
    for (const auto& changed : {std::optional(remedies.capacity), remedies.placement, remedies.replicas}) {
      if (changed) {
        EXPECT_TRUE(ResolveWorkload(*changed, kCluster).ok());
      }
    }
  }
}

}  // namespace
}  // namespace moeplan::planner
