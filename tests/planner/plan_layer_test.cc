#include "planner/search/plan_layer.h"
#include "models/cost/operation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "models/all_to_all/algorithm.h"
#include "models/links/link_model.h"
#include "models/measurement/candidates.h"
#include "models/measurement/needs.h"
#include "models/schedule/schedules.h"
#include "models/text.h"
#include "planner/search/candidate.h"
#include "planner/search/explain.h"
#include "planner/search/explain_plan.h"
#include "planner/search/price_plan.h"
#include "tests/planner/by_hand.h"
#include "tests/planner/contract_files.h"

namespace moeplan::planner {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

// ---- A layer of 2 nodes with 2 GPUs: MP 2 = ESP 2 inside a node, EP 2 between nodes. I = 4·512·256·2 = 1 MiB, k·f·I =
// 2 MiB; an all-to-all of O1-O3 moves 1 MiB, so chunks of at least 128 KiB allow N = 1 ... 8.

constexpr double kMiB = 1048576;

Workload SmallWorkload() {
  Workload workload;
  workload.name = "small";
  workload.layer = {.batch = 4,
                    .sequence_length = 512,
                    .model_dim = 256,
                    .hidden_dim = 512,
                    .experts = 4,
                    .top_k = 2,
                    .capacity_factor = 1.0};
  workload.layout = {.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2};
  workload.min_chunk_bytes = kMiB / 8;
  return workload;
}

const CollectiveKey kSaa = OverlappedGather({4, 2}, /*gather_group_size=*/2, /*shards=*/2);

// 1 GB/s between nodes, 4 GB/s inside, quick kernels.
Profile SmallProfile() {
  Profile profile;
  profile.name = "two-by-two";
  profile.version = 3;
  profile.cluster = {.nodes = 2, .gpus_per_node = 2};
  profile.collectives = {
      Line(Over(Collective::kAllToAll, {2, 1}), 2e-5, 1e-9),
      Line(Over(Collective::kAllToAll, {4, 2}), 3e-5, 1e-9),
      Line(Over(Collective::kAllGather, {2, 2}), 1e-5, 2.5e-10),
      Line(Over(Collective::kReduceScatter, {2, 2}), 1e-5, 2.5e-10),
      Line(Over(Collective::kAllReduce, {2, 2}), 1e-5, 5e-10),
      Line(Over(Collective::kAllToAll, {2, 2}), 1e-5, 2.5e-10),
      Line(Over(Collective::kAllGather, {2, 1}), 2e-5, 1e-9),
      Line(kSaa, 3e-5, 1.1e-9),
  };
  profile.kernels = {Line(Kernel::kExpertGemm, 1e-5, 1e-13), Line(Kernel::kGate, 5e-6, 1e-11),
                     Line(Kernel::kPermute, 5e-6, 1e-11), Line(Kernel::kDeviceCopy, 5e-6, 1e-11)};
  return profile;
}

PlanAnswer Answer(const Workload& workload, const Profile& profile, const PlanOptions& options = {},
                  const PlanBudget& budget = {}) {
  auto answer = PlanLayer(workload, profile, options, budget);
  EXPECT_TRUE(answer.ok()) << answer.status().message();
  return answer.ok() ? *answer : PlanAnswer{};
}

std::set<int> ChunksOf(const PlanAnswer& answer, Family family) {
  std::set<int> chunks;
  for (const Plan& plan : answer.candidates) {
    if (plan.knobs.family == family) chunks.insert(plan.knobs.chunks);
  }
  return chunks;
}

double TimeOf(const Knobs& knobs, const Profile& profile) {
  const auto graph = BuildSchedule(knobs, Resolved(SmallWorkload(), profile.cluster), profile.cluster);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return Play(*graph, PriceGraph(*graph, profile).tasks).total_s;
}

TEST(PlanLayerTest, EveryFamilyThatTheLayoutAllowsIsACandidate) {
  const PlanAnswer answer = Answer(SmallWorkload(), SmallProfile());
  std::set<Family> families;
  for (const Plan& plan : answer.candidates) families.insert(plan.knobs.family);
  EXPECT_EQ(families.size(), Families().size());
  // Baselines; S1, S2 twice and PIPELINE with r = 1 ... 8; O1; O2 and O3 with N = 1 ... 8; each token once a node.
  const int equal = 2 + 8 + 2 * 8 + 8 + 1 + 8 + 8 + 1;
  EXPECT_GE(answer.search.evaluated, equal);
  EXPECT_LE(answer.search.evaluated, equal + 5 * 61) << "61 splits of S1, S2, O2, O3 and PIPELINE each";
  // S1 and S2 exchange over 2 nodes of 2, where the profile knows DIRECT alone.
  EXPECT_THAT(answer.skipped_candidates, ElementsAre(Field(&Skipped::what, "PARM_S1"), Field(&Skipped::what, "PARM_S2"),
                                                     Field(&Skipped::what, "PIPELINE")));
  EXPECT_EQ(answer.search.stop_reason, StopReason::kProvedBest);
  EXPECT_EQ(answer.profile_name, "two-by-two");
  EXPECT_EQ(answer.profile_version, 3);
  EXPECT_EQ(answer.workload.layout.data_parallel, 2);  // 4 ranks / TP 2.
}

TEST(PlanLayerTest, CandidatesAreBestFirstAndNothingPricedIsFaster) {
  const Profile profile = SmallProfile();
  const PlanAnswer answer = Answer(SmallWorkload(), profile);
  EXPECT_TRUE(std::ranges::is_sorted(answer.candidates, {}, &Plan::predicted_time_s));
  double fastest_s = std::numeric_limits<double>::infinity();
  for (const Family family :
       {Family::kBaseline, Family::kBaselineTp, Family::kParmS1, Family::kParmS2, Family::kMontaO1}) {
    fastest_s = std::min(fastest_s, TimeOf({.family = family}, profile));
  }
  fastest_s = std::min(fastest_s, TimeOf({.family = Family::kParmS2, .overlapped_gather = true}, profile));
  for (int chunks = 1; chunks <= 8; ++chunks) {
    for (const Family family : {Family::kMontaO2, Family::kMontaO3}) {
      fastest_s = std::min(fastest_s, TimeOf({.family = family, .chunks = chunks}, profile));
    }
  }
  const auto equal =
      std::ranges::find(answer.candidates, true, [](const Plan& plan) { return plan.knobs.chunk_shares.empty(); });
  ASSERT_NE(equal, answer.candidates.end());
  EXPECT_EQ(equal->predicted_time_s, fastest_s);
  EXPECT_EQ(answer.search.time_floor_s, answer.candidates.front().predicted_time_s);
}

TEST(PlanLayerTest, ListsPowersOfTwoAndTheFastestChunkCount) {
  // The all-gather starts up slowly, so that the fastest N is neither 1 nor 8.
  Profile profile = SmallProfile();
  profile.collectives[2] = Line(Over(Collective::kAllGather, {2, 2}), 8e-5, 6e-10);
  const PlanAnswer answer = Answer(SmallWorkload(), profile);
  int fastest = 1;
  for (int chunks = 2; chunks <= 8; ++chunks) {
    const auto time_s = [&](int n) { return TimeOf({.family = Family::kMontaO3, .chunks = n}, profile); };
    if (time_s(chunks) < time_s(fastest)) fastest = chunks;
  }
  ASSERT_EQ(fastest, 3) << "the case should be one where the fastest is no power of two";
  EXPECT_THAT(ChunksOf(answer, Family::kMontaO3), ElementsAre(1, 2, 3, 4, 8));
}

// ---- Hand-worked: one GPU on each of two nodes, so MP and ESP have one rank; only the all-to-all over EP and compute
// are left, and the schedules without chunks coincide.

Workload PlainWorkload() {
  Workload workload = SmallWorkload();
  workload.layout = {.tensor_parallel = 1, .expert_parallel = 2, .expert_sharding_parallel = 1};
  return workload;
}

Profile PlainProfile() {
  Profile profile;
  profile.cluster = {.nodes = 2, .gpus_per_node = 1};
  profile.collectives = {Line(Over(Collective::kAllToAll, {2, 1}), 1, 0)};
  profile.kernels = {Line(Kernel::kExpertGemm, 4, 0), Line(Kernel::kGate, 0.5, 0), Line(Kernel::kPermute, 0.25, 0),
                     Line(Kernel::kDeviceCopy, 0.125, 0)};
  return profile;
}

TEST(PlanLayerTest, TiesGoToTheSimplerFamily) {
  const PlanAnswer answer = Answer(PlainWorkload(), PlainProfile());
  const Plan& best = answer.candidates.front();
  EXPECT_EQ(best.knobs.family, Family::kBaseline);
  // Gate, dispatch, all-to-all, experts, all-to-all, combine: 0.5 + 0.25 + 1 + 4 + 1 + 0.25.
  EXPECT_DOUBLE_EQ(best.predicted_time_s, 7);
  EXPECT_DOUBLE_EQ(best.communication_time_s, 2);
  EXPECT_DOUBLE_EQ(best.exposed_communication_s, 2);
  EXPECT_DOUBLE_EQ(best.compute_time_s, 5);
  EXPECT_THAT(best.order, ElementsAre("gate", "dispatch", "dispatch_a2a", "expert", "combine_a2a", "combine"));
  EXPECT_EQ(best.timeline.size(), best.order.size());
  // The others tie in enum order; each family is a candidate of its own.
  std::vector<Family> tied;
  for (const Plan& plan : answer.candidates) {
    if (plan.predicted_time_s == 7) tied.push_back(plan.knobs.family);
  }
  EXPECT_THAT(tied, ElementsAre(Family::kBaseline, Family::kBaselineTp, Family::kParmS1, Family::kParmS2,
                                Family::kMontaO1, Family::kPipeline));
  EXPECT_THAT(answer.explanation, AllOf(HasSubstr("It is the faster baseline"), HasSubstr("(no interval known)")));
}

TEST(PlanLayerTest, AGainThatMeasurementsCannotTellIsNone) {
  Workload workload = SmallWorkload();
  workload.layout = {.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 1};
  Profile profile = PlainProfile();
  // Experts of S2 take 4 s, those of the baseline, on all slots, 8.
  const Workload resolved = Resolved(workload, profile.cluster);
  const TaskGraph s2 = *BuildSchedule({.family = Family::kParmS2}, resolved, profile.cluster);
  const auto expert = std::ranges::find(s2.tasks, TaskKind::kExpert, &Task::kind);
  profile.kernels[0] = Line(Kernel::kExpertGemm, 0, 4 / expert->size);
  profile.collectives.push_back(Line(Over(Collective::kAllGather, {2, 1}), 1, 0));
  profile.collectives.push_back(Line(OverlappedGather({2, 1}, /*gather_group_size=*/2, /*shards=*/1), 1.9, 0));
  // One after the other: 0.5 + 0.25 + 1 + 4 + 1 + 1 + 0.25 = 8 s; overlapped, 1.9 s for the last two: 7.9 s.
  const Plan at_its_word = Answer(workload, profile).candidates.front();
  EXPECT_TRUE(at_its_word.knobs.overlapped_gather);
  EXPECT_DOUBLE_EQ(at_its_word.predicted_time_s, 7.9);
  // 1.3 % is within what these measurements scatter, so the simpler gather is as good.
  for (CollectiveModel& entry : profile.collectives) {
    entry.model.fit = FitQuality{.interval_low_ratio = 0.9, .interval_high_ratio = 1.1};
  }
  const PlanAnswer measured = Answer(workload, profile);
  EXPECT_FALSE(measured.candidates[0].knobs.overlapped_gather);
  EXPECT_DOUBLE_EQ(measured.candidates[0].predicted_time_s, 8);
  EXPECT_DOUBLE_EQ(measured.candidates[1].predicted_time_s, 7.9);
  EXPECT_DOUBLE_EQ(measured.search.time_floor_s, 7.9);
}

TEST(PlanLayerTest, ACostErrsAlikeWhereverItIsAsked) {
  Profile profile = PlainProfile();
  profile.collectives[0].model.fit = FitQuality{.interval_low_ratio = 0.5, .interval_high_ratio = 3};
  const Plan best = Answer(PlainWorkload(), profile).candidates.front();
  EXPECT_DOUBLE_EQ(best.predicted_time_s, 7);
  // Two all-to-alls of 0.5 s, or of 3 s, instead of 1; and 7 % of all for another hour.
  EXPECT_DOUBLE_EQ(best.low_s, 7 - std::hypot(1, 0.49));
  EXPECT_DOUBLE_EQ(best.high_s, 7 + std::hypot(4, 0.49));
}

TEST(PlanLayerTest, CostsErrIndependentlyOfEachOther) {
  Profile profile = PlainProfile();
  profile.collectives[0].model.fit = FitQuality{.interval_low_ratio = 0.5, .interval_high_ratio = 3};
  for (KernelModel& kernel : profile.kernels) {
    if (kernel.key.kernel == Kernel::kExpertGemm) {
      kernel.model.fit = FitQuality{.interval_low_ratio = 0.75, .interval_high_ratio = 2};
    }
  }
  const Plan best = Answer(PlainWorkload(), profile).candidates.front();
  const auto expert = std::ranges::find(best.timeline, TaskKind::kExpert, &TaskTiming::kind);
  const double expert_s = expert->end_s - expert->start_s;
  EXPECT_GT(expert_s, 0);
  EXPECT_DOUBLE_EQ(best.low_s, 7 - std::hypot(1, 0.25 * expert_s, 0.49));
  EXPECT_DOUBLE_EQ(best.high_s, 7 + std::hypot(4, expert_s, 0.49));
}

TEST(PlanLayerTest, MemoryIsBuffersAndExpertWeights) {
  const Plan best = Answer(PlainWorkload(), PlainProfile()).candidates.front();
  const Cluster cluster = PlainProfile().cluster;
  const auto graph = BuildSchedule({.family = Family::kBaseline}, Resolved(PlainWorkload(), cluster), cluster);
  // 2 of 4 experts, 2 matrices of 256 × 512, 2 bytes each: 1 MiB of weights.
  EXPECT_EQ(best.memory_bytes, BufferBytes(*graph) + kMiB);
}

TEST(PlanLayerTest, MeasuredContentionCanChangeTheAnswer) {
  // Perfect overlap makes chunks pay; with all-to-all and all-gather four times slower beside each other they do not.
  Profile profile = SmallProfile();
  const Plan alone = Answer(SmallWorkload(), profile).candidates.front();
  EXPECT_TRUE(alone.knobs.family == Family::kMontaO2 || alone.knobs.family == Family::kMontaO3);
  profile.collectives.push_back(Line(Over(Collective::kAllToAll, {2, 1}, Contention::kWithAllGather), 8e-5, 4e-9));
  profile.collectives.push_back(Line(Over(Collective::kAllGather, {2, 2}, Contention::kWithAllToAll), 4e-5, 1e-9));
  const Plan contended = Answer(SmallWorkload(), profile).candidates.front();
  EXPECT_NE(contended.knobs, alone.knobs);
  EXPECT_GT(contended.predicted_time_s, alone.predicted_time_s);
}

// ---- What cannot be answered.

TEST(PlanLayerTest, ACandidateWithAMissingKeyIsSkippedWithTheCommand) {
  Profile profile = SmallProfile();
  std::erase_if(profile.collectives, [](const CollectiveModel& entry) { return entry.key == kSaa; });
  const PlanAnswer answer = Answer(SmallWorkload(), profile);
  EXPECT_THAT(
      answer.skipped_candidates,
      Contains(AllOf(Field(&Skipped::what, "PARM_S2"),
                     Field(&Skipped::reason,
                           AllOf(HasSubstr("with the overlapped gather: the profile lacks ALL_TO_ALL_ALL_GATHER "
                                           "groupSize 4 ranksPerNode 2 gatherGroupSize 2 shards 2; measure with: "),
                                 HasSubstr("moeplan calibrate"))))));
  EXPECT_THAT(ChunksOf(answer, Family::kParmS2), ElementsAre(1));  // The gather after the all-to-all is still there.
  EXPECT_TRUE(answer.rules.parm.has_value());
}

TEST(PlanLayerTest, CollectivesThatWereNotMeasuredArePredictedFromTheLinks) {
  Profile profile = SmallProfile();
  const CollectiveKey missing = Over(Collective::kAllReduce, {2, 2});
  std::erase_if(profile.collectives, [&](const CollectiveModel& entry) { return entry.key == missing; });
  const PlanAnswer without = Answer(SmallWorkload(), profile);
  EXPECT_THAT(ChunksOf(without, Family::kBaseline), IsEmpty());
  EXPECT_FALSE(without.rules.parm.has_value());

  const LinkModel links(profile);
  const PlanAnswer answer = Answer(SmallWorkload(), profile, {.links = &links});
  EXPECT_THAT(ChunksOf(answer, Family::kBaseline), ElementsAre(1));
  EXPECT_TRUE(answer.rules.parm.has_value());
  EXPECT_THAT(answer.warnings, ElementsAre(HasSubstr(
                                   "ALL_REDUCE groupSize 2 ranksPerNode 2: not measured; extrapolated from links, 90 % "
                                   "interval × ")));
  for (const Plan& plan : answer.candidates) {
    // Of what was measured exactly, nothing else is uncertain.
    EXPECT_EQ(plan.low_s < plan.predicted_time_s && plan.predicted_time_s < plan.high_s,
              plan.knobs.family == Family::kBaseline || plan.knobs.family == Family::kBaselineTp);
  }
}

TEST(PlanLayerTest, ProductsOfOtherDimensionsArePricedAsTheNearestMeasured) {
  const auto gemm_of = [](int model_dim, int hidden_dim, double seconds_a_flop) {
    return KernelModel{
        {.kernel = Kernel::kExpertGemm, .bytes_per_element = 2, .model_dim = model_dim, .hidden_dim = hidden_dim},
        MakeCostModel(AlphaBeta{1e-5, seconds_a_flop})};
  };
  Workload workload = SmallWorkload();
  workload.phase = Phase::kTraining;
  const Layer& layer = workload.layer;
  const KernelModel near = gemm_of(layer.model_dim * 2, layer.hidden_dim, 3e-13);
  KernelModel beside = gemm_of(layer.model_dim * 2, layer.hidden_dim, 9e-13);
  beside.key.contention = Contention::kWithAllToAll;
  KernelModel gradient = gemm_of(layer.model_dim * 2, layer.hidden_dim, 4e-13);
  gradient.key.kernel = Kernel::kExpertInputGradient;
  Profile profile = SmallProfile();
  profile.kernels[0] = near;
  for (const KernelModel& entry : {beside, gradient, gemm_of(layer.model_dim * 16, layer.hidden_dim, 1e-13)})
    profile.kernels.push_back(entry);
  EXPECT_THAT(Answer(workload, profile).candidates, IsEmpty());  // Only the rules that need no product answer.

  const LinkModel links(profile);
  const PlanAnswer answer = Answer(workload, profile, {.links = &links});
  ASSERT_FALSE(answer.candidates.empty());
  EXPECT_THAT(answer.warnings,
              Contains(AllOf(HasSubstr(StrCat("modelDim ", layer.model_dim)), HasSubstr(": not measured; priced as "),
                             HasSubstr(StrCat("modelDim ", layer.model_dim * 2)))));
  // By hand: as if all of that had been measured whatever the dimensions.
  Profile exact = SmallProfile();
  exact.kernels[0].model = near.model;
  exact.kernels.push_back({{.kernel = Kernel::kExpertGemm, .contention = Contention::kWithAllToAll}, beside.model});
  exact.kernels.push_back({{.kernel = Kernel::kExpertInputGradient}, gradient.model});
  EXPECT_EQ(answer.candidates, Answer(workload, exact).candidates);
  // Who prices one plan takes the same, and says so.
  const Workload resolved = Resolved(workload, profile.cluster);
  for (const Plan& plan : answer.candidates) {
    const auto priced = PriceFilledIn(plan, resolved, profile);
    ASSERT_TRUE(priced.ok()) << priced.status().message();
    EXPECT_EQ(priced->time_s(), plan.predicted_time_s);
    EXPECT_THAT(priced->prices.notes.Warnings(), Contains(HasSubstr(": not measured; priced as ")));
  }
  const auto explained = ExplainPlan(answer.candidates.front(), resolved, profile);
  ASSERT_TRUE(explained.ok()) << explained.status().message();
  std::set<CostKey> costs;
  for (const ExplainedTask& task : explained->tasks) {
    if (task.foretold) costs.insert(*task.cost);
  }
  EXPECT_THAT(costs, testing::UnorderedElementsAre(CostKey(near.key), CostKey(gradient.key)));
}

TEST(PlanLayerTest, TheBaselineAloneIsTheOneThatPlansAreHeldAgainst) {
  Profile profile = SmallProfile();
  // Fewer CTAs are a little faster, by less than measurements tell from none, and less simple.
  for (CollectiveModel entry : std::vector(profile.collectives)) {
    entry.key.ctas = 8;
    if (entry.key.group.size == 2 && entry.key.collective == Collective::kAllToAll)
      entry.model = MakeCostModel(AlphaBeta{2e-5, 0.99e-9});
    profile.collectives.push_back(entry);
  }
  for (CollectiveModel& entry : profile.collectives)
    entry.model.fit = FitQuality{.interval_low_ratio = 0.9, .interval_high_ratio = 1.1};
  const auto compared = PlanAndCompare(SmallWorkload(), profile);
  ASSERT_TRUE(compared.ok()) << compared.status().message();
  EXPECT_EQ(compared->answer, Answer(SmallWorkload(), profile));
  const auto baseline = PlanBaseline(SmallWorkload(), profile);
  ASSERT_TRUE(baseline.ok()) << baseline.status().message();
  EXPECT_TRUE(IsBaseline(baseline->knobs.family));
  EXPECT_EQ(baseline->knobs.communication_ctas, 8);
  EXPECT_EQ(baseline->predicted_time_s, *compared->comparison.baseline_time_s);
}

TEST(PlanLayerTest, WhatWasMeasuredIsNeverPredicted) {
  const Profile profile = SmallProfile();
  const LinkModel links(profile);
  EXPECT_EQ(Answer(SmallWorkload(), profile, {.links = &links}), Answer(SmallWorkload(), profile));
}

TEST(PlanLayerTest, WhatNoMeasuredGroupReachesStaysMissing) {
  Profile profile = SmallProfile();
  const CollectiveKey across_nodes = Over(Collective::kAllGather, {2, 1});
  std::erase_if(profile.collectives, [&](const CollectiveModel& entry) {
    return entry.key.collective == Collective::kAllToAll || entry.key == across_nodes || entry.key == kSaa;
  });
  const LinkModel links(profile);
  const PlanOptions options = {.links = &links};
  const auto answer = PlanLayer(SmallWorkload(), profile, options);
  ASSERT_FALSE(answer.ok());
  EXPECT_THAT(answer.status().message(), AllOf(HasSubstr("the profile lacks ALL_TO_ALL groupSize 2 ranksPerNode 1"),
                                               HasSubstr("measure with: moeplan calibrate")));
}

// ---- All-to-all algorithms: over EP&ESP, which lies on 2 nodes with 2 ranks each.

CollectiveKey OverBoth(AllToAllAlgorithm algorithm) {
  CollectiveKey key = Over(Collective::kAllToAll, {4, 2});
  key.algorithm = algorithm;
  return key;
}

TEST(PlanLayerTest, AFasterAllToAllAlgorithmIsChosen) {
  Profile profile = SmallProfile();
  profile.collectives.push_back(Line(OverBoth(AllToAllAlgorithm::kHier1d), 3e-5, 2e-9));
  profile.collectives.push_back(Line(OverBoth(AllToAllAlgorithm::kHier2d), 1e-5, 1e-10));
  profile.collectives.push_back(Line(OverBoth(AllToAllAlgorithm::kPipe), 3e-5, 5e-10));
  const PlanAnswer answer = Answer(SmallWorkload(), profile);
  EXPECT_EQ(answer.candidates.front().knobs.all_to_all, AllToAllAlgorithm::kHier2d);
  EXPECT_EQ(answer.search.time_floor_s, answer.candidates.front().predicted_time_s);
  EXPECT_THAT(answer.explanation, HasSubstr(" with HIER_2D"));
  EXPECT_THAT(answer.skipped_candidates, IsEmpty());
  // Both all-to-alls of S1 move 1 MiB: 2 · (3e-5 − 1e-5 + (1e-9 − 1e-10) · 2^20) less than DIRECT.
  const double gain_s = TimeOf({.family = Family::kParmS1}, profile) -
                        TimeOf({.family = Family::kParmS1, .all_to_all = AllToAllAlgorithm::kHier2d}, profile);
  const auto graph =
      BuildSchedule({.family = Family::kParmS1}, Resolved(SmallWorkload(), profile.cluster), profile.cluster);
  double moved_bytes = 0;
  int exchanges = 0;
  for (const Task& task : graph->tasks) {
    if (task.name != "dispatch_a2a" && task.name != "combine_a2a") continue;
    moved_bytes += task.size;
    ++exchanges;
  }
  EXPECT_EQ(exchanges, 2);
  EXPECT_NEAR(gain_s, exchanges * 2e-5 + moved_bytes * 9e-10, 1e-12);
}

TEST(PlanLayerTest, ATieGoesToTheDirectAllToAll) {
  Profile profile = SmallProfile();
  for (const AllToAllAlgorithm algorithm : IndirectAlgorithms()) {
    profile.collectives.push_back(Line(OverBoth(algorithm), 3e-5, 1e-9));
  }
  const PlanAnswer answer = Answer(SmallWorkload(), profile);
  // Every algorithm is listed with the piece count that is fastest.
  std::vector<AllToAllAlgorithm> of_s1;
  const auto fastest =
      std::ranges::find(answer.candidates, Family::kParmS1, [](const Plan& plan) { return plan.knobs.family; });
  ASSERT_NE(fastest, answer.candidates.end());
  for (const Plan& plan : answer.candidates) {
    if (plan.knobs.family == Family::kParmS1 && PiecesOf(plan.knobs) == PiecesOf(fastest->knobs)) {
      of_s1.push_back(plan.knobs.all_to_all);
    }
  }
  EXPECT_THAT(of_s1, ElementsAre(AllToAllAlgorithm::kDirect, AllToAllAlgorithm::kHier1d, AllToAllAlgorithm::kHier2d,
                                 AllToAllAlgorithm::kPipe));
}

TEST(PlanLayerTest, AlgorithmsThatWereNotMeasuredAreToldOnceForEachFamily) {
  Profile profile = SmallProfile();
  profile.collectives.push_back(Line(OverBoth(AllToAllAlgorithm::kPipe), 3e-5, 1e-9));
  const std::vector<Skipped> skipped = Answer(SmallWorkload(), profile).skipped_candidates;
  ASSERT_EQ(skipped.size(), 3u);  // S1, S2, PIPELINE.
  EXPECT_THAT(skipped[1].reason,
              HasSubstr("the profile lacks ALL_TO_ALL groupSize 4 ranksPerNode 2 algorithm HIER_1D and ALL_TO_ALL "
                        "groupSize 4 ranksPerNode 2 algorithm HIER_2D; measure with: "));
}

TEST(PlanLayerTest, WhatEveryVariantLacksIsToldOnce) {
  Profile profile = SmallProfile();
  for (const AllToAllAlgorithm algorithm : IndirectAlgorithms()) {
    profile.collectives.push_back(Line(OverBoth(algorithm), 3e-5, 1e-9));
  }
  profile.kernels.erase(profile.kernels.begin());  // EXPERT_GEMM.
  EXPECT_EQ(Answer(SmallWorkload(), profile).skipped_candidates.size(), Families().size());
}

// ---- Limited CTAs: on PlainWorkload cut in at most two equal partitions, all-to-alls and experts of 4 s each, uncut.
// Experts take twice as long beside an all-to-all, and as long as alone beside one of 8 CTAs.

Workload TwoPartitions() {
  Workload workload = PlainWorkload();
  workload.min_chunk_bytes = kMiB;  // Of 2 MiB: halves, and no smaller share.
  return workload;
}

Profile LimitedProfile(double limited_all_to_all_s) {
  Profile profile = PlainProfile();
  const Workload resolved = Resolved(TwoPartitions(), profile.cluster);
  const TaskGraph graph = *BuildSchedule({.family = Family::kBaseline}, resolved, profile.cluster);
  const auto size_of = [&](TaskKind kind) { return std::ranges::find(graph.tasks, kind, &Task::kind)->size; };
  const double bytes = size_of(TaskKind::kAllToAll), flops = size_of(TaskKind::kExpert);
  CollectiveKey limited = Over(Collective::kAllToAll, {2, 1});
  limited.ctas = 8;
  profile.collectives = {Line(Over(Collective::kAllToAll, {2, 1}), 0, 4 / bytes),
                         Line(limited, 0, limited_all_to_all_s / bytes)};
  profile.kernels = {Line(Kernel::kExpertGemm, 0, 4 / flops)};
  for (const int ctas : {0, 8}) {
    KernelModel beside = Line(Kernel::kExpertGemm, 0, (ctas == 0 ? 8 : 4) / flops);
    beside.key.contention = Contention::kWithAllToAll;
    beside.key.ctas = ctas;
    profile.kernels.push_back(beside);
  }
  return profile;
}

TEST(PlanLayerTest, FewerCtasWinWhereExpertsGainMoreThanCollectivesLose) {
  // Halves: all-to-alls of 2.2 s at 0 and 2.2, experts of 2 s at 2.2, all-to-alls at 4.4 and 6.6, experts at 4.4. With
  // all CTAs experts run at half speed beside the all-to-alls: they end at 5 and 8, and the last all-to-all at 10.
  const PlanAnswer answer = Answer(TwoPartitions(), LimitedProfile(4.4));
  const Plan& best = answer.candidates.front();
  EXPECT_EQ(best.knobs.communication_ctas, 8);
  EXPECT_EQ(best.knobs.partition_degree, 2);
  EXPECT_NEAR(best.predicted_time_s, 8.8, 1e-9);
  EXPECT_THAT(answer.explanation, HasSubstr("PARM_S1 with 8 CTAs in 2 partitions is predicted to take"));
  EXPECT_THAT(answer.explanation,
              HasSubstr("is faster than that once ALL_TO_ALL groupSize 2 ranksPerNode 1 ctas 8 takes"));
}

TEST(PlanLayerTest, FewerCtasLoseWhereCollectivesLoseMoreThanExpertsGain) {
  // 4 · 2.6 = 10.4 s of all-to-alls.
  const PlanAnswer answer = Answer(TwoPartitions(), LimitedProfile(5.2));
  const Plan& best = answer.candidates.front();
  EXPECT_EQ(best.knobs.communication_ctas, 0);
  EXPECT_NEAR(best.predicted_time_s, 10, 1e-9);
  const auto limited = std::ranges::find_if(answer.candidates, [](const Plan& plan) {
    return plan.knobs.communication_ctas == 8 && plan.knobs.family == Family::kParmS1;
  });
  ASSERT_NE(limited, answer.candidates.end());
  EXPECT_NEAR(limited->predicted_time_s, 10.4, 1e-9);
}

TEST(PlanLayerTest, TheFastestAloneIsListedOfEachLimitAndTiesGoToMoreCtas) {
  Profile profile = SmallProfile();
  const PlanAnswer unlimited = Answer(SmallWorkload(), profile);
  for (const int ctas : {8, 16}) {
    for (CollectiveModel entry : SmallProfile().collectives) {
      entry.key.ctas = ctas;
      profile.collectives.push_back(entry);
    }
  }
  const PlanAnswer answer = Answer(SmallWorkload(), profile);
  EXPECT_EQ(answer.candidates.front(), unlimited.candidates.front());
  EXPECT_EQ(answer.skipped_candidates, unlimited.skipped_candidates);
  for (const Family family : Families()) {
    std::map<std::pair<int, bool>, int> listed;
    std::vector<int> ties;
    double fastest_s = std::numeric_limits<double>::infinity();
    for (const Plan& plan : answer.candidates) {
      if (plan.knobs.family != family || !plan.knobs.chunk_shares.empty()) continue;
      ++listed[{plan.knobs.communication_ctas, plan.knobs.overlapped_gather}];
      fastest_s = std::min(fastest_s, plan.predicted_time_s);
      if (plan.predicted_time_s == fastest_s) ties.push_back(plan.knobs.communication_ctas);
    }
    for (const int ctas : {8, 16}) {
      EXPECT_EQ((listed[{ctas, false}]), 1) << Name(family);
      EXPECT_EQ((listed[{ctas, true}]), family == Family::kParmS2 ? 1 : 0) << Name(family);
    }
    EXPECT_THAT(ties, ElementsAre(0, 16, 8)) << Name(family);
  }
}

TEST(PlanLayerTest, WhereALimitWasMeasuredOfSomeCollectivesAloneItsCandidatesAreSkippedWithTheRest) {
  Profile profile = SmallProfile();
  const PlanAnswer without = Answer(SmallWorkload(), profile);
  CollectiveKey limited = Over(Collective::kAllToAll, {2, 1});
  limited.ctas = 8;
  profile.collectives.push_back(Line(limited, 2e-5, 1e-10));  // O1 to O3 exchange over it, and would win.
  const PlanAnswer answer = Answer(SmallWorkload(), profile);
  EXPECT_EQ(answer.candidates, without.candidates);
  EXPECT_THAT(
      answer.skipped_candidates,
      Contains(AllOf(Field(&Skipped::what, "MONTA_O2"),
                     Field(&Skipped::reason,
                           HasSubstr("with 8 CTAs: the profile lacks ALL_GATHER groupSize 2 ranksPerNode 2 ctas 8 and "
                                     "REDUCE_SCATTER groupSize 2 ranksPerNode 2 ctas 8; measure with: "
                                     "NCCL_MAX_CTAS=8 before nccl-tests, and moeplan import nccl-tests --ctas 8 ")))));
}

TEST(PlanLayerTest, AnAlgorithmMeasuredWithALimitAloneIsTriedWithIt) {
  Profile profile = SmallProfile();
  for (CollectiveModel entry : SmallProfile().collectives) {
    entry.key.ctas = 8;
    profile.collectives.push_back(entry);
  }
  CollectiveKey limited = OverBoth(AllToAllAlgorithm::kHier2d);
  limited.ctas = 8;
  profile.collectives.push_back(Line(limited, 1e-5, 1e-10));
  const PlanAnswer answer = Answer(SmallWorkload(), profile);
  EXPECT_EQ(answer.candidates.front().knobs.all_to_all, AllToAllAlgorithm::kHier2d);
  EXPECT_EQ(answer.candidates.front().knobs.communication_ctas, 8);
  EXPECT_THAT(answer.explanation, HasSubstr(" with HIER_2D with 8 CTAs"));
  EXPECT_THAT(answer.skipped_candidates,
              Contains(Field(&Skipped::reason, HasSubstr("lacks ALL_TO_ALL groupSize 4 ranksPerNode 2 algorithm "
                                                         "HIER_1D"))));
}

TEST(PlanLayerTest, RulesOfLaterVersionsAreSkippedByName) {
  EXPECT_THAT(Answer(SmallWorkload(), SmallProfile()).skipped_rules,
              ElementsAre(Skipped{"lancet", "asks for a training graph: moeplan plan --graph GRAPH.json"}));
}

TEST(PlanLayerTest, ARuleWithoutItsCodecsIsSkippedAndTheOthersAnswer) {
  EXPECT_TRUE(Answer(SmallWorkload(), SmallProfile()).rules.schemoe);
  Workload workload = SmallWorkload();
  workload.combine_codec = Codec::kInt8;
  const PlanAnswer answer = Answer(workload, SmallProfile());
  EXPECT_TRUE(answer.rules.parm && answer.rules.monta && !answer.rules.schemoe);
  ASSERT_EQ(answer.skipped_rules.size(), 2u);
  EXPECT_EQ(answer.skipped_rules[0].what, "schemoe");
  EXPECT_THAT(answer.skipped_rules[0].reason,
              HasSubstr("lacks ENCODE_INT8 bytesPerElement 2 modelDim 256 and DECODE_INT8 bytesPerElement 2 modelDim "
                        "256; measure with: moeplan calibrate"));
}

TEST(PlanLayerTest, OneRuleAloneIsAnAnswer) {
  // Parm and MoNTA lack the gather; ScheMoE's rule does not ask for it.
  Profile profile = SmallProfile();
  std::erase_if(profile.collectives, [](const CollectiveModel& entry) {
    return entry.key.collective == Collective::kAllGather || entry.key.group.size == 4;
  });
  profile.cluster.device_memory_bytes = 1;  // And no candidate fits.
  const PlanAnswer answer = Answer(SmallWorkload(), profile);
  EXPECT_TRUE(!answer.rules.parm && !answer.rules.monta && answer.rules.schemoe);
  EXPECT_THAT(answer.candidates, IsEmpty());
}

TEST(PlanLayerTest, MissingSmallKernelsArePricedZeroAndWarnedOf) {
  Profile profile = SmallProfile();
  std::erase_if(profile.kernels, [](const KernelModel& entry) { return entry.key.kernel == Kernel::kGate; });
  EXPECT_THAT(Answer(SmallWorkload(), profile).warnings,
              ElementsAre("GATE bytesPerElement 2 modelDim 256: not in the profile; priced 0"));
  EXPECT_THAT(Answer(SmallWorkload(), SmallProfile()).warnings, IsEmpty());
  EXPECT_THAT(Answer(SmallWorkload(), SmallProfile()).explanation, HasSubstr("Whether it fits was not checked"));
  Profile known = SmallProfile();
  known.cluster.device_memory_bytes = 1e12;
  EXPECT_THAT(Answer(SmallWorkload(), known).explanation, ::testing::Not(HasSubstr("was not checked")));
}

TEST(PlanLayerTest, WithoutExpertGemmTheRulesStillAnswer) {
  Profile profile = SmallProfile();
  profile.kernels.erase(profile.kernels.begin());
  const PlanAnswer answer = Answer(SmallWorkload(), profile);
  EXPECT_THAT(answer.candidates, IsEmpty());
  EXPECT_TRUE(answer.rules.parm && answer.rules.monta && !answer.rules.schemoe);
  EXPECT_THAT(answer.explanation,
              AllOf(HasSubstr("No candidate could be priced: BASELINE: the profile lacks EXPERT_GEMM"),
                    HasSubstr("measure with: moeplan calibrate"), HasSubstr("Only the rules answered.")));
  EXPECT_EQ(answer.search.evaluated, 0);
  EXPECT_EQ(answer.search.time_floor_s, 0);
  // Not other all-to-all algorithms, which nobody measured either.
  const auto pipeline = PlanLayer(SmallWorkload(), profile, {.family = Family::kPipeline});
  EXPECT_THAT(pipeline.ok() ? pipeline->explanation : std::string(pipeline.status().message()),
              HasSubstr("PIPELINE: the profile lacks EXPERT_GEMM"));
}

TEST(PlanLayerTest, AnEmptyProfileIsAnErrorThatNamesWhatIsMissing) {
  Profile profile = SmallProfile();
  profile.collectives.clear();
  const auto answer = PlanLayer(SmallWorkload(), profile);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.status().code(), StatusCode::kInvalidInput);
  EXPECT_THAT(answer.status().message(),
              AllOf(HasSubstr("no rule and no candidate is left"), HasSubstr("ALL_TO_ALL groupSize 2 ranksPerNode 1"),
                    HasSubstr("calibrate")));
}

TEST(PlanLayerTest, AWrongWorkloadIsAnErrorThatNamesTheField) {
  Workload workload = SmallWorkload();
  workload.layer.top_k = 9;
  EXPECT_THAT(PlanLayer(workload, SmallProfile()).status().message(), HasSubstr("layer.topK: found 9"));
}

TEST(PlanLayerTest, WhatDoesNotFitTheDeviceIsSkippedWithTheBytesMissing) {
  // Room for all but the largest candidate.
  Profile profile = SmallProfile();
  const PlanAnswer roomy = Answer(SmallWorkload(), profile);
  const Plan& largest = *std::ranges::max_element(roomy.candidates, {}, &Plan::memory_bytes);
  profile.cluster.device_memory_bytes = largest.memory_bytes - 1;
  const PlanAnswer tight = Answer(SmallWorkload(), profile);
  EXPECT_THAT(tight.skipped_candidates,
              Contains(AllOf(Field(&Skipped::what, Name(largest.knobs.family)),
                             Field(&Skipped::reason, HasSubstr(", 1 more than cluster.deviceMemoryBytes")))));
  for (const Plan& plan : tight.candidates) EXPECT_LT(plan.memory_bytes, largest.memory_bytes);
  // Room for nothing: the rules answer alone.
  profile.cluster.device_memory_bytes = 1;
  const PlanAnswer none = Answer(SmallWorkload(), profile);
  EXPECT_THAT(none.candidates, IsEmpty());
  EXPECT_GT(none.search.evaluated, 0);
  const Plan& smallest = *std::ranges::min_element(roomy.candidates, {}, &Plan::memory_bytes);
  EXPECT_THAT(none.explanation, AllOf(HasSubstr("the smallest needs at least " +
                                                std::to_string(std::llround(smallest.memory_bytes)) + " bytes"),
                                      HasSubstr("raise layout.expertParallel"), Not(HasSubstr("Costs are missing")),
                                      HasSubstr("Only the rules answered.")));
}

TEST(PlanLayerTest, MemoryIsAskedBeforeWhatTheProfileLacks) {
  Profile profile = SmallProfile();
  profile.kernels.erase(profile.kernels.begin());  // EXPERT_GEMM.
  profile.cluster.device_memory_bytes = 1;
  const PlanAnswer answer = Answer(SmallWorkload(), profile);
  EXPECT_THAT(answer.candidates, IsEmpty());
  EXPECT_THAT(answer.skipped_candidates,
              Contains(AllOf(Field(&Skipped::what, "BASELINE"),
                             Field(&Skipped::reason, HasSubstr("cluster.deviceMemoryBytes, which is 1")))));
  EXPECT_THAT(answer.explanation,
              AllOf(HasSubstr("more than cluster.deviceMemoryBytes, which is 1; lower layer.batch"),
                    HasSubstr(" Costs are missing, too: the profile lacks EXPERT_GEMM"),
                    HasSubstr("measure with: moeplan calibrate"), HasSubstr(". Only the rules answered.")));
}

TEST(PlanLayerTest, WhatOneScheduleLacksIsNamedBesideTheBytesThatAnotherLacks) {
  // Room for the smallest schedule alone, and that cannot be priced.
  Profile profile = SmallProfile();
  const PlanAnswer roomy = Answer(SmallWorkload(), profile);
  const Plan& smallest = *std::ranges::min_element(roomy.candidates, {}, &Plan::memory_bytes);
  profile.cluster.device_memory_bytes = smallest.memory_bytes;
  profile.kernels.erase(profile.kernels.begin());  // EXPERT_GEMM.
  const PlanAnswer answer = Answer(SmallWorkload(), profile);
  EXPECT_THAT(answer.candidates, IsEmpty());
  EXPECT_THAT(answer.explanation, AllOf(HasSubstr("more than cluster.deviceMemoryBytes"),
                                        HasSubstr(" Costs are missing, too: the profile lacks EXPERT_GEMM")));
}

TEST(PlanLayerTest, WhatATrainingJobKeepsDecidesWhatFits) {
  Workload workload = SmallWorkload();
  const Plan layer = Answer(workload, SmallProfile()).candidates.front();
  // 2 of 4 experts of 2 · 256 · 512/2 parameters on one rank alone each, the gate's 256 · 4 on 2: 16ψ, of which the
  // layer's own answer has 2ψ of the experts.
  workload.zero_stage = 0;
  workload.recompute = Recompute::kFull;
  const double states = 14.0 * 2 * 2 * 256 * 256 + 16.0 * 256 * 4;
  Profile profile = SmallProfile();
  profile.cluster.device_memory_bytes = layer.memory_bytes + states;
  const auto same = [&](const Plan& plan) { return plan.knobs == layer.knobs; };
  const PlanAnswer fits = Answer(workload, profile);
  const auto kept = std::ranges::find_if(fits.candidates, same);
  ASSERT_NE(kept, fits.candidates.end());
  EXPECT_DOUBLE_EQ(kept->memory_bytes, layer.memory_bytes + states);
  profile.cluster.device_memory_bytes -= 1;
  EXPECT_TRUE(std::ranges::none_of(Answer(workload, profile).candidates, same));
}

TEST(PlanLayerTest, APhaseIsPricedByItsOwnTasks) {
  std::map<Phase, Plan> of_baseline;
  for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kTraining}) {
    Workload workload = SmallWorkload();
    workload.phase = phase;
    for (const Plan& plan : Answer(workload, SmallProfile()).candidates) {
      if (plan.knobs == Knobs{.family = Family::kBaseline}) of_baseline[phase] = plan;
    }
  }
  ASSERT_EQ(of_baseline.size(), 3u);
  const Plan &forward = of_baseline[Phase::kForward], &backward = of_baseline[Phase::kBackward];
  const Plan& training = of_baseline[Phase::kTraining];
  EXPECT_EQ(training.timeline.size(), forward.timeline.size() + backward.timeline.size());
  EXPECT_NEAR(training.predicted_time_s, forward.predicted_time_s + backward.predicted_time_s, 1e-12);
  // The profile has no products of the backward pass: each takes as long as the forward one, of which it has two.
  EXPECT_GT(backward.compute_time_s, 1.5 * forward.compute_time_s);
  EXPECT_EQ(training.memory_bytes, backward.memory_bytes) << "the forward pass leaves what the backward pass reads";
  EXPECT_GT(backward.memory_bytes, forward.memory_bytes);
}

// ---- Options.

TEST(PlanLayerTest, TopCutsTheListAndNothingElse) {
  const PlanAnswer all = Answer(SmallWorkload(), SmallProfile());
  PlanAnswer top = Answer(SmallWorkload(), SmallProfile(), {.top = 2});
  ASSERT_EQ(top.candidates.size(), 2u);
  EXPECT_EQ(top.candidates[1], all.candidates[1]);
  top.candidates = all.candidates;
  EXPECT_EQ(top, all);
}

TEST(PlanLayerTest, TheSameInputsGiveTheSameAnswer) {
  EXPECT_EQ(Answer(SmallWorkload(), SmallProfile()), Answer(SmallWorkload(), SmallProfile()));
}

TEST(PlanLayerTest, ACancelledSearchAnswersTheRulesAndClaimsNoFloor) {
  std::stop_source stop;
  stop.request_stop();
  const PlanAnswer answer = Answer(SmallWorkload(), SmallProfile(), {}, {.stop = {.cancelled = stop.get_token()}});
  EXPECT_EQ(answer.search.stop_reason, StopReason::kCancelled);
  EXPECT_EQ(answer.search.time_floor_s, 0);
  EXPECT_EQ(answer.search.evaluated, 0);
  EXPECT_THAT(answer.explanation, HasSubstr("Cancelled"));
  EXPECT_TRUE(answer.rules.parm.has_value());
  Profile empty = SmallProfile();
  empty.collectives.clear();
  EXPECT_EQ(PlanLayer(SmallWorkload(), empty, {}, {.stop = {.cancelled = stop.get_token()}}).status().code(),
            StatusCode::kCancelled);

  const PlanAnswer late = Answer(SmallWorkload(), SmallProfile(), {}, {.stop = {.out_of_time = stop.get_token()}});
  EXPECT_EQ(late.search.stop_reason, StopReason::kOutOfTime);
  EXPECT_EQ(late.search.time_floor_s, 0);
  EXPECT_TRUE(late.rules.parm.has_value());
}

// ---- The explanation can be checked.

// What stands between the two texts; a failure where they do not stand.
std::string TextBetween(const std::string& text, const std::string& before, const std::string& after) {
  const size_t found = text.find(before);
  EXPECT_NE(found, std::string::npos) << text;
  if (found == std::string::npos) return "0";
  const size_t start = found + before.size();
  return text.substr(start, text.find(after, start) - start);
}

// Gathers and copies slow enough that O3, which overlaps them, is ahead of O2, and exchanges inside a node too slow for
// relays.
Profile SlowCopyProfile() {
  Profile profile = SmallProfile();
  for (CollectiveModel& entry : profile.collectives) {
    if (entry.key == Over(Collective::kAllToAll, {2, 2})) entry = Line(entry.key, 1e-5, 2e-9);
  }
  profile.collectives[2] = Line(Over(Collective::kAllGather, {2, 2}), 1e-5, 8e-10);
  profile.kernels[3] = Line(Kernel::kDeviceCopy, 5e-6, 2e-10);
  return profile;
}

TEST(PlanLayerTest, TheAnswerFlipsWhereTheExplanationSaysItDoes) {
  const Profile profile = SlowCopyProfile();
  const PlanAnswer answer = Answer(SmallWorkload(), profile);
  const std::string family = TextBetween(answer.explanation, "Runner-up: ", " ");
  const double factor = std::stod(TextBetween(
      answer.explanation, " is faster than that once ALL_GATHER groupSize 2 ranksPerNode 2 takes ", " times as long"));
  const auto with_gathers_scaled = [&](double scale) {
    Profile changed = profile;
    changed.collectives[2] = Line(Over(Collective::kAllGather, {2, 2}), 1e-5 * scale, 8e-10 * scale);
    return changed;
  };
  const auto runner_up =
      std::ranges::find_if(answer.candidates, [&](const Plan& plan) { return Name(plan.knobs.family) == family; });
  ASSERT_NE(runner_up, answer.candidates.end());
  const auto lead_s = [&](double scale) {
    const Profile changed = with_gathers_scaled(scale);
    return TimeOf(runner_up->knobs, changed) - TimeOf(answer.candidates.front().knobs, changed);
  };
  // The factor is printed to three digits, so it is tried one per cent on either side.
  EXPECT_GT(lead_s(1), 0);
  EXPECT_GT(lead_s(factor * (factor > 1 ? 0.99 : 1.01)), 0);
  EXPECT_LT(lead_s(factor * (factor > 1 ? 1.01 : 0.99)), 0);
}

TEST(PlanLayerTest, TheExplanationSaysWhetherIntervalsOverlap) {
  Profile profile = SlowCopyProfile();
  EXPECT_THAT(Answer(SmallWorkload(), profile).explanation, HasSubstr("(no interval known)"));
  for (CollectiveModel& entry : profile.collectives) {
    entry.model.fit = FitQuality{.interval_low_ratio = 0.5, .interval_high_ratio = 2};
  }
  EXPECT_THAT(Answer(SmallWorkload(), profile).explanation, HasSubstr("; their intervals overlap."));
}

TEST(PlanLayerTest, TheExplanationGivesTheSpeedupOverTheFasterBaseline) {
  const PlanAnswer answer = Answer(SmallWorkload(), SmallProfile());
  double baseline_s = std::numeric_limits<double>::infinity();
  for (const Plan& plan : answer.candidates) {
    const bool is_baseline = plan.knobs.family == Family::kBaseline || plan.knobs.family == Family::kBaselineTp;
    if (is_baseline) baseline_s = std::min(baseline_s, plan.predicted_time_s);
  }
  char speedup[32];
  std::snprintf(speedup, sizeof speedup, "a speedup of %.3g.", baseline_s / answer.candidates.front().predicted_time_s);
  EXPECT_THAT(answer.explanation, HasSubstr("The faster baseline is BASELINE_TP"));
  EXPECT_THAT(answer.explanation, HasSubstr(speedup));
}

// So many equal operations in a row, exact to `uncertain_s` each.
Candidate RowOf(int tasks, const Knobs& knobs, const CostKey& key, double time_s, double uncertain_s = 0) {
  TaskGraph graph;
  graph.layout.data_parallel = 1;
  GraphPrices prices;
  prices.keys = {key};
  for (int i = 0; i < tasks; ++i) {
    const CollectiveOp op = {.in = kNoBuffer, .out = kNoBuffer};
    graph.tasks.push_back({.kind = TaskKind::kAllToAll, .stream = StreamKind::kInterNode, .op = op});
    prices.tasks.push_back({.time_s = time_s, .low_s = time_s - uncertain_s, .high_s = time_s + uncertain_s, .key = 0});
  }
  Candidate row = MakeCandidate(knobs, graph, prices, /*memory_bytes=*/0);
  AddInterval(row);
  return row;
}

// A tie's simplest stands in front, though the other baseline is the faster.
TEST(ExplainTest, TheFasterBaselineIsTheFasterOneOfATie) {
  const CostKey all_to_all = Over(Collective::kAllToAll, {2, 1});
  const Candidate simple = RowOf(1, {.family = Family::kBaseline}, all_to_all, 1.001);
  const Candidate fast = RowOf(1, {.family = Family::kBaselineTp}, all_to_all, 1);
  EXPECT_EQ(FasterBaseline({simple, fast}), 1u);
  EXPECT_EQ(FasterBaseline({fast, simple}), 0u);
  EXPECT_EQ(FasterBaseline({RowOf(1, {.family = Family::kPipeline}, all_to_all, 1)}), std::nullopt);
  EXPECT_THAT(Explain({simple, fast}), HasSubstr(" It is a baseline: no other schedule beats it"));
  EXPECT_THAT(Explain({fast, simple}), HasSubstr(" It is the faster baseline: no other schedule beats it"));
}

// One all-to-all of 1 s against three gathers of 0.5 s: at 1.5 times the all-to-all's time they tie.
TEST(ExplainTest, FlipFactorIsWhereTheTimesMeet) {
  const CostKey all_to_all = Over(Collective::kAllToAll, {2, 1}), gather = Over(Collective::kAllGather, {2, 2});
  const Candidate best = RowOf(1, {}, all_to_all, 1), other = RowOf(3, {}, gather, 0.5);
  EXPECT_NEAR(FlipFactor(best, other, all_to_all).value(), 1.5, 1e-9);
  // The other's own operation has to become faster: 3·0.5·f < 1.
  EXPECT_NEAR(FlipFactor(best, other, gather).value(), 2.0 / 3, 1e-9);
  EXPECT_EQ(FlipFactor(best, other, CostKey(kSaa)), std::nullopt);
}

// 0.1 % of uncertainty tells 1 % apart, although both may take 7 % longer tomorrow.
TEST(CandidateTest, WhatAllCandidatesHaveInCommonMakesNoTie) {
  const CostKey all_to_all = Over(Collective::kAllToAll, {2, 1});
  const Candidate sure = RowOf(1, {.family = Family::kParmS1}, all_to_all, 1, /*uncertain_s=*/0.001);
  EXPECT_GT(sure.high_s - sure.low_s, 0.13);
  EXPECT_NEAR(IndistinctGainS(sure), 0.001, 1e-12);
  const Candidate unsure = RowOf(1, {.family = Family::kParmS1}, all_to_all, 1, /*uncertain_s=*/0.1);
  EXPECT_NEAR(IndistinctGainS(unsure), 0.03, 1e-12);
}

TEST(ExplainTest, IntervalsThatDoNotMeetAreSaidNotToOverlap) {
  const CostKey all_to_all = Over(Collective::kAllToAll, {2, 1});
  const Candidate best = RowOf(1, {.family = Family::kParmS1}, all_to_all, 1, /*uncertain_s=*/0.001);
  const Candidate slow = RowOf(2, {.family = Family::kParmS2}, all_to_all, 0.75, /*uncertain_s=*/0.001);
  EXPECT_THAT(Explain({best, slow}), HasSubstr("; their intervals do not overlap."));
}

TEST(ExplainTest, AFasterRunnerUpThatLostANearTieIsCalledWhatItIs) {
  const CostKey all_to_all = Over(Collective::kAllToAll, {2, 1}), gather = Over(Collective::kAllGather, {2, 2});
  const Candidate best = RowOf(1, {.family = Family::kParmS1}, all_to_all, 1, /*uncertain_s=*/0.1);
  const Candidate fastest = RowOf(2, {.family = Family::kMontaO2, .chunks = 2}, gather, 0.49);
  // 2·0.49 = 0.98 s: 2 % below 1 s, inside 0.9 to 1.1. It wins as it is, so no factor lets it win.
  EXPECT_THAT(
      Explain({best, fastest}),
      AllOf(HasSubstr("Runner-up: MONTA_O2 with 2 chunks at 980 ms, 2 % faster, which measurements cannot tell, "
                      "but less simple; their intervals overlap."),
            Not(HasSubstr("win"))));
  const Candidate as_fast = RowOf(2, {.family = Family::kMontaO2, .chunks = 2}, gather, 0.5);
  EXPECT_THAT(Explain({best, as_fast}), HasSubstr("at 1000 ms, just as fast but less simple;"));
}

// ---- Across rooms.

TEST(PlanLayerTest, TheContractsExampleGetsRulesAndCandidates) {
  const PlanAnswer answer = Answer(ExampleWorkload(), ExampleProfile());
  const auto expected = ReadContractFile("expected.example.json")["rules"];
  ASSERT_TRUE(answer.rules.parm && answer.rules.monta);
  EXPECT_EQ(Name(answer.rules.parm->choice), expected["parm"]["choice"].get<std::string>());
  EXPECT_EQ(Name(answer.rules.monta->choice), expected["monta"]["choice"].get<std::string>());
  // The example's profile has no reduce-scatter: O1-O3 cannot be priced.
  EXPECT_THAT(answer.skipped_candidates,
              Contains(AllOf(Field(&Skipped::what, "MONTA_O2"),
                             Field(&Skipped::reason, HasSubstr("lacks REDUCE_SCATTER groupSize 8 ranksPerNode 8;")))));
  ASSERT_FALSE(answer.candidates.empty());
  EXPECT_THAT(answer.explanation, HasSubstr("The faster baseline is BASELINE_TP"));
  std::set<std::string> distinct(answer.warnings.begin(), answer.warnings.end());
  EXPECT_EQ(distinct.size(), answer.warnings.size());
}

TEST(PlanLayerTest, AProfileOfTheNeedsAnswersEverything) {
  const Workload resolved = Resolved(SmallWorkload(), SmallProfile().cluster);
  Profile profile{.cluster = SmallProfile().cluster};
  std::set<CostKey> keys;
  for (const Need& need : NeedsOf({resolved}, profile.cluster)) keys.insert(need.key);
  for (const CostKey& key : keys) {
    const CostModel model = MakeCostModel(AlphaBeta{1e-5, 1e-10});
    if (const auto* collective = std::get_if<CollectiveKey>(&key)) profile.collectives.push_back({*collective, model});
    if (const auto* kernel = std::get_if<KernelKey>(&key)) profile.kernels.push_back({*kernel, model});
  }
  const PlanAnswer answer = Answer(resolved, profile);
  EXPECT_TRUE(answer.rules.parm && answer.rules.monta);
  EXPECT_THAT(answer.skipped_candidates, IsEmpty());
  EXPECT_THAT(answer.warnings, IsEmpty());
}

}  // namespace
}  // namespace moeplan::planner
