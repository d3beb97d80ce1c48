// Dispatchers in the place of the all-to-all, and exchanges beside another micro-batch: by hand on a profile whose
// links have no start-up time.
#include "planner/layout/dispatch_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "models/step/two_batches.h"
#include "planner/layout/layout_space.h"
#include "planner/layout/price_layout.h"
#include "planner/layout/rank_layouts.h"
#include "planner/layout/step_time.h"
#include "tests/planner/small_layouts.h"
#include "tests/planner/small_steps.h"

namespace moeplan::planner {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// All 8 ranks of both nodes hold one expert each; a micro-batch is 64 tokens of 64 bytes, two pairs each.
constexpr Layout kAcross = {.expert_parallel = 8, .data_parallel = 8};
constexpr double kPairBytes = 64 * 2 * 64;

// Seconds a byte: across nodes, inside one, of gathers.
Profile ProfileOfLinks(double across, double inside, double gathers = 1e-9) {
  Profile profile = SmallProfile();
  profile.collectives = {Line(Over(Collective::kAllToAll, {8, 4}), 0, across),
                         Line(Over(Collective::kAllToAll, {4, 4}), 0, inside),
                         Line(Over(Collective::kAllGather, {8, 4}), 0, gathers),
                         Line(Over(Collective::kReduceScatter, {8, 4}), 0, 3 * gathers),
                         Line(Over(Collective::kAllReduce, {8, 4}), 0, 1e-12)};
  return profile;
}

// Layers run as frameworks run them, since other schedules would send less.
LayoutRequest RequestWith(Dispatcher dispatcher, Transport transport = Transport::kNccl) {
  LayoutRequest request = SmallRequest();
  request.as_frameworks = true;
  request.dispatcher = dispatcher, request.transport = transport;
  return request;
}

StepAnswer Priced(const LayoutRequest& request, const Profile& profile, const Layout& layout = kAcross,
                  int micro_batch = 1) {
  const auto answer = PriceLayout(QuestionOf(request, layout, micro_batch), profile);
  EXPECT_TRUE(answer.ok()) << answer.status().message();
  return answer.ok() ? *answer : StepAnswer();
}

double MoeLayerS(const StepAnswer& answer) { return answer.layout.moe_layer_s; }

// The same links at half the speed.
Profile Slower(Profile profile) {
  for (CollectiveModel& entry : profile.collectives) std::get<AlphaBeta>(entry.model.curve).beta_s_per_unit *= 2;
  return profile;
}

// What the four exchanges of a layer, two forward and two backward, take, as what they take more at half the speed:
// gradients of weights run beside them either way.
double ExchangesS(const LayoutRequest& request, const Profile& profile) {
  return MoeLayerS(Priced(request, Slower(profile))) - MoeLayerS(Priced(request, profile));
}

TEST(DispatchTest, ADispatcherSendsARowOnceToANode) {
  const double rate = RateOf({}, Dispatcher::kDeepEp, Transport::kNccl, /*across_nodes=*/true).over_all_to_all;
  // Two different experts of eight: the other three of a node or one of four.
  const double nodes = ExpectedPlaces({.experts = 8, .top_k = 2}, 2), ranks = 2;
  EXPECT_NEAR(nodes, 1 + 4.0 / 7, 1e-12);
  const double network_s = 4 * kPairBytes * (nodes / 2) * 1e-6, inside_s = 4 * kPairBytes * (ranks / 2) * 1e-6;
  const LayoutRequest request = RequestWith(Dispatcher::kDeepEp);
  EXPECT_NEAR(ExchangesS(request, ProfileOfLinks(1e-6, 1e-30)), network_s / rate, 1e-4 * network_s);
  EXPECT_NEAR(ExchangesS(request, ProfileOfLinks(1e-30, 1e-6)), inside_s / rate, 1e-4 * inside_s);
  // While rows travel, those that came are spread: the longer of both counts.
  EXPECT_NEAR(ExchangesS(request, ProfileOfLinks(1e-6, 1e-6)), inside_s / rate, 1e-4 * inside_s);
  // The all-to-all sends each pair.
  EXPECT_NEAR(ExchangesS(RequestWith(Dispatcher::kAllToAll), ProfileOfLinks(1e-6, 1e-30)), 4 * kPairBytes * 1e-6,
              1e-4 * kPairBytes * 1e-6);
}

TEST(DispatchTest, AnAllGatherMovesAllRowsThereAndSumsThemBack) {
  // Each of 8 ranks has 64 rows; two gathers, and two scatters that take three times as long.
  const double rows_bytes = 8 * 64 * 64.0;
  EXPECT_NEAR(ExchangesS(RequestWith(Dispatcher::kAllGather), ProfileOfLinks(1e-3, 1e-3, 1e-6)),
              2 * rows_bytes * 1e-6 + 2 * rows_bytes * 3e-6, 1e-4 * rows_bytes * 1e-6);
}

// Neither does it move more where one rank has more to do, or slots are padded; an all-to-all does.
TEST(DispatchTest, AnAllGatherMovesTheSameWhateverTheBusiestRankGets) {
  LayoutRequest gathers = RequestWith(Dispatcher::kAllGather), all_to_all = RequestWith(Dispatcher::kAllToAll);
  const Profile profile = ProfileOfLinks(1e-6, 1e-30, 1e-6);
  const double gathered_s = ExchangesS(gathers, profile), exchanged_s = ExchangesS(all_to_all, profile);
  gathers.capacity_factor = all_to_all.capacity_factor = 2;
  EXPECT_NEAR(ExchangesS(gathers, profile), gathered_s, 1e-6 * gathered_s);
  EXPECT_NEAR(ExchangesS(all_to_all, profile), 2 * exchanged_s, 1e-6 * exchanged_s);
}

TEST(DispatchTest, WhatWasMeasuredGoesBeforeLinksAndIsNotSaidToBeGuessed) {
  Profile profile = ProfileOfLinks(1e-6, 1e-6);
  const LayoutRequest request = RequestWith(Dispatcher::kDeepEp, Transport::kUccl);
  const auto guessed = [](const StepAnswer& answer) {
    return std::ranges::any_of(answer.warnings, [](const std::string& text) {
      return text ==
             "ALL_TO_ALL groupSize 8 ranksPerNode 4 dispatcher DEEPEP transport UCCL: not measured; priced as "
             "an all-to-all of the rows that it sends, once to a node";
    });
  };
  EXPECT_TRUE(guessed(Priced(request, profile)));
  CollectiveModel measured = Line(Over(Collective::kAllToAll, {8, 4}), 0, 1e-7);
  measured.key.dispatcher = Dispatcher::kDeepEp, measured.key.transport = Transport::kUccl;
  profile.collectives.push_back(measured);
  EXPECT_FALSE(guessed(Priced(request, profile)));
  EXPECT_THAT(Priced(RequestWith(Dispatcher::kDeepEp), profile).warnings,
              Contains(HasSubstr("dispatcher DEEPEP: not measured with that transport, but with UCCL; priced as")));
  const double nodes = ExpectedPlaces({.experts = 8, .top_k = 2}, 2);
  EXPECT_NEAR(ExchangesS(request, profile), 4 * kPairBytes * (nodes / 2) * 1e-7, 1e-4 * kPairBytes * 1e-7);
}

// One size was measured: at it that counts, beyond it links say how much longer others take.
TEST(DispatchTest, BeyondTheSizesThatWereMeasuredLinksCount) {
  const CostModel links = MakeCostModel(AlphaBeta{1e-5, 1e-9});
  const CostModel one = MakeCostModel(LogLog{{{1 << 20, 4e-3}}});
  const CostModel model = MeasuredModel({&one, 0.5, 1}, links, {1, 1.25});
  const auto at = [&](double bytes) { return TimeS(model.curve, bytes, 1); };
  // Half the all-to-all's bytes are what was measured.
  const double there = 2 << 20, ratio = 4e-3 / (1e-5 + there * 1e-9);
  EXPECT_NEAR(at(there), 4e-3, 1e-9);
  for (const double bytes : {1 << 14, 1 << 18, 1 << 24}) {
    EXPECT_NEAR(at(bytes), ratio * (1e-5 + bytes * 1e-9), 1e-3 * at(bytes)) << bytes;
  }
  // Without links the curve goes on as curves do.
  EXPECT_NEAR(TimeS(MeasuredModel({&one, 0.5, 1}, std::nullopt, {}).curve, 1 << 14, 1), 4e-3, 1e-9);
  // One size tells little of others, and where it was is known.
  EXPECT_NEAR(model.fit->interval_high_ratio, 1.25, 1e-9);
  EXPECT_EQ(model.size_low, 2 << 20);
  EXPECT_EQ(model.size_high, 2 << 20);
  // A curve of several sizes stands between its ends as it was measured.
  const CostModel two = MakeCostModel(LogLog{{{1 << 16, 1e-3}, {1 << 20, 4e-3}}});
  const CostModel whole = MeasuredModel({&two, 1, 1}, links, {1, 1.25});
  EXPECT_NEAR(TimeS(whole.curve, 1 << 18, 1), 2e-3, 1e-9);
  EXPECT_NEAR(whole.fit->interval_high_ratio, 1, 1e-9);
}

TEST(DispatchTest, ADispatcherHasTheScheduleOfFrameworksAlone) {
  LayoutRequest request = RequestWith(Dispatcher::kDeepEp);
  EXPECT_EQ(Priced(request, ProfileOfLinks(1e-6, 1e-6)).layout.moe, (Knobs{.family = Family::kBaseline}));
  StepQuestion question = QuestionOf(request, kAcross);
  question.schedule = Family::kPipeline;
  EXPECT_THAT(PriceLayout(question, ProfileOfLinks(1e-6, 1e-6)).status().message(),
              HasSubstr("layout.schedule: found PIPELINE in 1 pieces, expected BASELINE or PARM_S1 in one with "
                        "dispatcher DEEPEP"));
  question.schedule = Family::kBaseline;
  question.partition_degree = 2;
  EXPECT_THAT(PriceLayout(question, ProfileOfLinks(1e-6, 1e-6)).status().message(), HasSubstr("in 2 pieces"));
}

TEST(DispatchTest, RulesNameWhatADispatcherCannotHave) {
  const Profile profile = ProfileOfLinks(1e-6, 1e-6);
  const auto refused = [&](LayoutRequest request, const Layout& layout = kAcross) {
    const auto answer = PriceLayout(QuestionOf(request, layout), profile);
    return answer.ok() ? "priced" : answer.status().message();
  };
  EXPECT_THAT(refused(RequestWith(Dispatcher::kAllToAll, Transport::kUccl)),
              HasSubstr("layout.transport: found UCCL with dispatcher ALL_TO_ALL"));
  EXPECT_THAT(refused(RequestWith(Dispatcher::kDeepEp),
                      {.expert_parallel = 4, .expert_sharding_parallel = 2, .data_parallel = 8}),
              HasSubstr("layout.expertShardingParallel: found 2, expected 1 with dispatcher DEEPEP"));
  LayoutRequest request = SmallRequest();
  request.delays_weight_gradients = true;
  EXPECT_THAT(refused(request), HasSubstr("layout.delayWeightGradients: found it without overlapExpertParallel"));
  request.overlaps_experts = true;
  request.overlaps_shared_experts = false;
  EXPECT_EQ(refused(request), "priced");
  EXPECT_THAT(refused(request, {.data_parallel = 8}), HasSubstr("expertParallel: found 1, expected at least 2"));
  EXPECT_THAT(refused(request, {.expert_parallel = 4, .pipeline_parallel = 2, .data_parallel = 4}),
              HasSubstr("virtualStages: found 1, expected at least 2"));
  request.dispatcher = Dispatcher::kAllGather;
  EXPECT_THAT(refused(request), HasSubstr("overlapExpertParallel: found it with dispatcher ALL_GATHER"));
  request.dispatcher = Dispatcher::kAllToAll;
  request.recompute = Recompute::kFull;
  EXPECT_THAT(refused(request), HasSubstr("overlapExpertParallel: found it with recompute FULL"));
  request.recompute = Recompute::kSelective;
  request.recompute_modules = {RecomputeModule::kMoe};
  EXPECT_THAT(refused(request), HasSubstr("overlapExpertParallel: found it with recomputeModules MOE"));
}

// ---- Beside another micro-batch.

TEST(OverlappedExpertsTest, AStepIsShorterByWhatRunsBesideAnotherMicroBatch) {
  LayoutRequest request = SmallRequest();
  request.overlaps_shared_experts = false;
  const Layout layout = {.expert_parallel = 8, .data_parallel = 8};
  for (const double a_byte : {1e-10, 1e-8, 1e-6}) {
    const Profile profile = ProfileOfLinks(a_byte, 1e-12);
    request.overlaps_experts = false;
    const auto plain = PriceLayout(
        {.request = request, .layout = layout, .schedule = Family::kBaseline, .chunks = 1, .partition_degree = 1},
        profile);
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    request.overlaps_experts = true;
    const StepAnswer beside = Priced(request, profile, layout);
    // Two layers with experts; two micro-batches, of which one pair runs side by side.
    const double saved_s = plain->layout.step_time_s - beside.layout.step_time_s;
    const double exchanged_s = 2 * 4 * kPairBytes * a_byte;
    EXPECT_GT(saved_s, 0) << a_byte;
    EXPECT_LE(saved_s, exchanged_s * (1 + 1e-9)) << a_byte;
    EXPECT_NEAR(SumOf(beside, &StepPartTime::exposed_s), beside.layout.step_time_s, 1e-9 * beside.layout.step_time_s);
    // Busy they are as long as before.
    EXPECT_NEAR(Find(beside, "moeLayers")->forward_s, Find(*plain, "moeLayers")->forward_s, 1e-12);
    // Both micro-batches are kept.
    EXPECT_NEAR(beside.layout.memory.kept_bytes, 2 * plain->layout.memory.kept_bytes, 1e-6);
  }
}

// Exchanges of 1e-9 s a byte are shorter than any compute here, those of 1e-6 longer than all of it.
TEST(OverlappedExpertsTest, AFurtherMicroBatchTakesAsLongAsTheLongerOfItsComputeAndItsExchanges) {
  LayoutRequest request = SmallRequest();
  request.overlaps_experts = true, request.overlaps_shared_experts = false;
  const auto further_s = [&](double a_byte) {
    request.global_batch = 64;
    const double eight_s = Priced(request, ProfileOfLinks(a_byte, 1e-12)).layout.step_time_s;
    request.global_batch = 56;
    return eight_s - Priced(request, ProfileOfLinks(a_byte, 1e-12)).layout.step_time_s;
  };
  const double free_s = further_s(1e-30);
  EXPECT_NEAR(further_s(1e-9), free_s, 1e-6 * free_s);
  const double exchanges_s = 2 * 4 * kPairBytes * 1e-6;
  EXPECT_GT(further_s(1e-6), exchanges_s);
  EXPECT_LT(further_s(1e-6), exchanges_s + free_s);
}

TEST(OverlappedExpertsTest, NothingIsFasterThanItsBound) {
  const Profile profile = SmallProfile();
  for (const Dispatcher dispatcher : {Dispatcher::kAllToAll, Dispatcher::kHybridEp}) {
    LayoutRequest request = RequestWith(dispatcher);
    request.overlaps_experts = true, request.overlaps_shared_experts = false;
    CostBook book(profile, request.model.model_dim, request.bytes_per_element);
    const std::vector<LayoutPoint> points = AllLayoutPoints(request, profile.cluster);
    ASSERT_FALSE(points.empty());
    for (const LayoutPoint& point : points) {
      const auto answer = PriceLayout(QuestionAt(request, point), profile);
      ASSERT_TRUE(answer.ok()) << answer.status().message();
      EXPECT_LE(LeastStepS(request, point, book), answer->layout.step_time_s * (1 + 1e-9));
    }
    // And the ranking finds the least of them, bounds or not.
    double least_s = std::numeric_limits<double>::infinity();
    for (const LayoutPoint& point : points) {
      least_s = std::min(least_s, PriceLayout(QuestionAt(request, point), profile)->layout.step_time_s);
    }
    for (const bool prune : {false, true}) {
      request.top = 3;
      const auto ranked = RankLayouts(request, profile, {.prune = prune});
      ASSERT_TRUE(ranked.ok()) << ranked.status().message();
      EXPECT_NEAR(ranked->layouts.front().step_time_s, least_s, 1e-9 * least_s);
    }
  }
}

TEST(OverlappedExpertsTest, ComputeIsSlowedAsItWasMeasuredBesideAnAllToAll) {
  Profile profile = ProfileOfLinks(1e-9, 1e-12);
  LogLog alone, beside;
  for (double flops = 1e3; flops < 1e10; flops *= 10) {
    alone.points.push_back({flops, flops / 1e12 + 1e-5}),
        beside.points.push_back({flops, 1.25 * (flops / 1e12 + 1e-5)});
  }
  profile.kernels = {{{.kernel = Kernel::kExpertGemm}, MakeCostModel(alone)},
                     {{.kernel = Kernel::kExpertGemm, .contention = Contention::kWithAllToAll}, MakeCostModel(beside)}};
  CostBook book(profile, 32, 2);
  EXPECT_NEAR(book.SlowdownBesideExchange(Dispatcher::kDeepEp), 1.25, 1e-9);
  // Without that measurement, by the processors that are left; a profile that says neither says so.
  profile.kernels.pop_back();
  profile.roofline = {.flops_per_s = 1e12, .bytes_per_s = 1e12, .processors = 100};
  CostBook by_processors(profile, 32, 2);
  EXPECT_NEAR(by_processors.SlowdownBesideExchange(Dispatcher::kDeepEp), 100.0 / 80, 1e-12);
  profile.roofline.reset();
  CostBook unknown(profile, 32, 2);
  EXPECT_EQ(unknown.SlowdownBesideExchange(Dispatcher::kDeepEp), 1);
  EXPECT_THAT(unknown.notes().Warnings(), Contains(HasSubstr("compute beside exchanges of experts")));
}

}  // namespace
}  // namespace moeplan::planner
