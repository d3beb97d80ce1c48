#include "planner/advice/advise.h"

#include <algorithm>
#include <limits>
#include <string>

#include "models/text.h"
#include "planner/advice/crossover.h"
#include "planner/advice/layout_words.h"
#include "planner/layout/layout_rules.h"
#include "planner/layout/layout_space.h"
#include "planner/layout/moe_plans.h"
#include "planner/layout/price_layout.h"
#include "planner/shipped/names.h"

namespace moeplan::planner {
namespace {

using ::testing::HasSubstr;

AdviceRequest RequestFor(const std::string& model, int gpus, int global_batch) {
  AdviceRequest request;
  request.model = *NamedModel(model);
  request.gpus = gpus;
  request.global_batch = global_batch;
  request.sequence_length = 4096;
  return request;
}

Profile HardwareFor(const std::string& name, const AdviceRequest& request) {
  auto profile = HardwareProfile(name, request.gpus, request.model);
  EXPECT_TRUE(profile.ok()) << profile.status().message();
  return *std::move(profile);
}

LayoutAdvice AdviceFor(const AdviceRequest& request, const Profile& profile) {
  auto advice = Advise(request, profile);
  EXPECT_TRUE(advice.ok()) << advice.status().message();
  return advice.ok() ? *std::move(advice) : LayoutAdvice();
}

// Every layout of the enumeration, run in every way that the adviser knows: how fast the fastest is that fits with
// room.
double BruteForceS(const AdviceRequest& request, const Profile& profile) {
  using enum RecomputeModule;
  Profile roomy = profile;
  roomy.cluster.device_memory_bytes *= 0.95;
  LayoutRequest plain = {.model = request.model,
                         .gpus = request.gpus,
                         .global_batch = request.global_batch,
                         .sequence_length = request.sequence_length,
                         .zero_stage = 1,
                         .as_frameworks = true};
  LayoutPricer pricer(plain, roomy);
  double least_s = std::numeric_limits<double>::infinity();
  const std::pair<Recompute, RecomputeModules> agains[] = {{Recompute::kNone, {}},
                                                           {Recompute::kSelective, {kMoeAct}},
                                                           {Recompute::kSelective, {kMoeAct, kLayerNorm}},
                                                           {Recompute::kSelective, {kLayerNorm, kMoe}},
                                                           {Recompute::kFull, {}}};
  for (const auto& [recompute, modules] : agains) {
    for (const Dispatcher dispatcher :
         {Dispatcher::kAllToAll, Dispatcher::kAllGather, Dispatcher::kDeepEp, Dispatcher::kHybridEp}) {
      for (const auto& [overlaps, delays] : {std::pair(false, false), {true, false}, {true, true}}) {
        for (const int stages : {1, 2, 3, 4, 6, 8, 9, 12, 16, 18, 24}) {
          LayoutRequest way = plain;
          way.recompute = recompute;
          way.recompute_modules = modules;
          way.dispatcher = dispatcher;
          way.overlaps_experts = overlaps;
          way.delays_weight_gradients = delays;
          way.virtual_stages = stages;
          for (const LayoutPoint& point : AllLayoutPoints(way, ClusterOf(way, roomy.cluster))) {
            const auto step = pricer.Price({.request = way,
                                            .layout = point.layout,
                                            .micro_batch = point.micro_batch,
                                            .horizontal_contexts = point.horizontal_contexts});
            if (step.ok() && step->missing_bytes <= 0) least_s = std::min(least_s, step->step_s);
          }
        }
      }
    }
  }
  return least_s;
}

TEST(AdviseTest, FindsWhatBruteForceFinds) {
  for (const auto& [model, hardware, gpus, batch] : {std::tuple("mixtral-8x7b", "a100-sxm", 16, 16),
                                                     {"qwen3-30b-a3b", "h100-sxm", 8, 16},
                                                     {"qwen3-30b-a3b", "l40s", 16, 16}}) {
    const AdviceRequest request = RequestFor(model, gpus, batch);
    const Profile profile = HardwareFor(hardware, request);
    const double least_s = BruteForceS(request, profile);
    if (least_s == std::numeric_limits<double>::infinity()) {
      EXPECT_FALSE(Advise(request, profile).ok()) << model << " on " << hardware;
      continue;
    }
    const LayoutAdvice advice = AdviceFor(request, profile);
    // A tie of a hundredth goes to the plainest.
    EXPECT_LE(advice.best.step.layout.step_time_s, least_s * 1.011) << model << " on " << hardware;
    EXPECT_GE(advice.best.step.layout.step_time_s, least_s * (1 - 1e-9)) << model << " on " << hardware;
  }
}

TEST(AdviseTest, WhatTheTrainingSystemDoesNotTakeIsNotAdvised) {
  AdviceRequest request = RequestFor("qwen3-30b-a3b", 64, 512);
  const Profile profile = HardwareFor("h100-sxm", request);
  const LayoutAdvice open = AdviceFor(request, profile);
  ASSERT_TRUE(SendsOnceToANode(open.best.question.request.dispatcher) || open.best.question.request.overlaps_experts);
  request.takes = [](const StepQuestion& question) {
    return question.request.dispatcher == Dispatcher::kAllToAll && !question.request.overlaps_experts;
  };
  const LayoutAdvice plain = AdviceFor(request, profile);
  EXPECT_TRUE(request.takes(plain.best.question));
  EXPECT_GE(plain.best.step.layout.step_time_s, open.best.step.layout.step_time_s * 0.99);
  request.takes = [](const StepQuestion&) { return false; };
  EXPECT_EQ(Advise(request, profile).status().code(), StatusCode::kInfeasible);
}

TEST(AdviseTest, ADispatcherRunsOverTheTransportThatItWasMeasuredWith) {
  AdviceRequest request = RequestFor("qwen3-30b-a3b", 64, 512);
  Profile profile = HardwareFor("h100-sxm", request);
  request.takes = [](const StepQuestion& question) { return question.request.dispatcher == Dispatcher::kDeepEp; };
  EXPECT_EQ(AdviceFor(request, profile).best.question.request.transport, Transport::kNccl);
  const auto plain = std::ranges::find_if(profile.collectives, [](const CollectiveModel& entry) {
    return entry.key.collective == Collective::kAllToAll && entry.key.group == GroupShape{16, 8};
  });
  ASSERT_NE(plain, profile.collectives.end());
  CollectiveModel measured = *plain;
  measured.key.dispatcher = Dispatcher::kDeepEp;
  measured.key.transport = Transport::kUccl;
  profile.collectives.push_back(measured);
  std::ranges::sort(profile.collectives, {}, &CollectiveModel::key);
  ASSERT_TRUE(ValidateProfile(profile).ok()) << ValidateProfile(profile).message();
  EXPECT_EQ(AdviceFor(request, profile).best.question.request.transport, Transport::kUccl);
  // What runs now says what is there.
  StepQuestion mine = {.request = {.model = request.model, .gpus = 64, .global_batch = 512, .sequence_length = 4096}};
  mine.request.zero_stage = 1;
  mine.request.dispatcher = Dispatcher::kDeepEp;
  mine.request.transport = Transport::kNvshmem;
  mine.layout = {.expert_parallel = 16, .data_parallel = 0};
  request.mine = mine;
  EXPECT_EQ(AdviceFor(request, profile).best.question.request.transport, Transport::kNvshmem);
}

TEST(AdviseTest, SaysWhatIsGainedOverMineAndWhy) {
  AdviceRequest request = RequestFor("qwen3-30b-a3b", 64, 512);
  const Profile profile = HardwareFor("h100-sxm", request);
  StepQuestion mine = {.request = {.model = request.model, .gpus = 64, .global_batch = 512, .sequence_length = 4096}};
  mine.request.zero_stage = 1;
  mine.request.as_frameworks = true;
  mine.request.recompute = Recompute::kFull;
  mine.layout = {.tensor_parallel = 2, .expert_parallel = 8, .data_parallel = 0};
  request.mine = mine;
  const LayoutAdvice advice = AdviceFor(request, profile);
  EXPECT_FALSE(advice.mine_is_usual);
  EXPECT_GT(advice.gain.ratio, 1);
  EXPECT_LE(advice.gain.low, advice.gain.ratio);
  EXPECT_GE(advice.gain.high, advice.gain.ratio);
  EXPECT_NEAR(advice.gain.ratio, advice.mine.step.layout.step_time_s / advice.best.step.layout.step_time_s, 1e-9);
  ASSERT_FALSE(advice.reasons.empty());
  EXPECT_LE(advice.reasons.size(), 3u);
  ASSERT_TRUE(advice.runner_up.has_value());
  EXPECT_FALSE(DecisionsBetween(advice.best.question, advice.runner_up->question).empty());
  ASSERT_FALSE(advice.measure_next.empty());
  EXPECT_GE(advice.measure_next[0].share, advice.measure_next.back().share);
}

// What is the job's is the same on both sides; what is a decision is not taken over.
TEST(AdviseTest, MineDecidesTheJobAndNotTheAnswer) {
  AdviceRequest request = RequestFor("qwen3-30b-a3b", 64, 512);
  const Profile profile = HardwareFor("h100-sxm", request);
  StepQuestion mine = {.request = {.model = request.model, .gpus = 64, .global_batch = 512, .sequence_length = 4096}};
  mine.request.zero_stage = 1;
  mine.request.capacity_factor = 1.5;
  mine.request.next_tokens = 1;
  mine.request.recompute = Recompute::kFull;
  // As Megatron's scripts have it that say nothing of experts' tensor parallelism.
  mine.layout = {.tensor_parallel = 2, .expert_parallel = 8, .expert_sharding_parallel = 2, .data_parallel = 0};
  request.mine = mine;
  const LayoutAdvice advice = AdviceFor(request, profile);
  EXPECT_EQ(advice.best.question.request.capacity_factor, 1.5);
  EXPECT_EQ(advice.best.question.request.next_tokens, 1);
  EXPECT_EQ(advice.best.question.layout.expert_sharding_parallel, 1);
  EXPECT_EQ(advice.mine.question.layout.expert_sharding_parallel, 2);
  EXPECT_GE(advice.gain.ratio, 1);
}

TEST(AdviseTest, LongSequencesHaveAnAnswer) {
  AdviceRequest request = RequestFor("qwen3-30b-a3b", 64, 64);
  request.sequence_length = 131072;
  const LayoutAdvice advice = AdviceFor(request, HardwareFor("h100-sxm", request));
  EXPECT_GT(advice.best.question.layout.context_parallel, 1);
  // Frameworks lay contexts along the experts' ranks.
  EXPECT_EQ(advice.best.question.horizontal_contexts, false);
}

TEST(AdviseTest, WhereContextsLieIsADecision) {
  StepQuestion one = {.request = {.model = *NamedModel("qwen3-30b-a3b")}, .horizontal_contexts = true};
  one.layout = {.expert_parallel = 8, .context_parallel = 2};
  StepQuestion other = one;
  other.horizontal_contexts = false;
  const auto decisions = DecisionsBetween(one, other);
  ASSERT_EQ(decisions.size(), 1u);
  EXPECT_EQ(decisions[0].taken, "contextParallel 2 across the experts' ranks");
  EXPECT_EQ(decisions[0].instead, "contextParallel 2");
  EXPECT_EQ(decisions[0].without.horizontal_contexts, false);
  EXPECT_THAT(LayoutText(one), HasSubstr("CP 2 (horizontal)"));
}

TEST(AdviseTest, TheUsualLayoutIsPlain) {
  const AdviceRequest request = RequestFor("mixtral-8x7b", 64, 256);
  const auto usual = UsualLayout(request, HardwareFor("h100-sxm", request));
  ASSERT_TRUE(usual.ok()) << usual.status().message();
  EXPECT_EQ(usual->layout.expert_parallel, 8);
  EXPECT_EQ(usual->layout.tensor_parallel, 1);
  EXPECT_EQ(usual->request.dispatcher, Dispatcher::kAllToAll);
  EXPECT_FALSE(usual->request.overlaps_experts);
}

TEST(AdviseTest, DecisionsAreToldInWords) {
  StepQuestion one = {.request = {.model = *NamedModel("deepseek-v3")}};
  one.layout = {.expert_parallel = 64, .pipeline_parallel = 16};
  one.request.dispatcher = Dispatcher::kDeepEp;
  one.request.virtual_stages = 2;
  one.request.recompute = Recompute::kSelective;
  one.request.recompute_modules = {RecomputeModule::kMlaUpProj, RecomputeModule::kMoeAct};
  StepQuestion other = one;
  other.request.dispatcher = Dispatcher::kAllToAll;
  other.request.recompute = Recompute::kFull;
  other.request.recompute_modules = {};
  const auto decisions = DecisionsBetween(one, other);
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_EQ(decisions[0].taken, "dispatcher DEEPEP");
  EXPECT_EQ(decisions[0].instead, "dispatcher ALL_TO_ALL");
  EXPECT_EQ(decisions[0].without.request.recompute, Recompute::kSelective);
  EXPECT_EQ(decisions[1].taken, "recompute MLA_UP_PROJ+MOE_ACT");
  EXPECT_THAT(LayoutText(one), HasSubstr("EP 64, PP 16 with 2 virtual stages"));
  EXPECT_TRUE(DecisionsBetween(one, one).empty());
}

// DeepEP as somebody measured it: slow to start and fast with many rows.
TEST(CrossoverTest, TheFastestDispatcherFlipsWhereItsCurvesCross) {
  const AdviceRequest asked = RequestFor("qwen3-30b-a3b", 8, 64);
  Profile profile = HardwareFor("b200", asked);
  const CollectiveKey deepep = {
      .collective = Collective::kAllToAll, .group = {8, 8}, .bytes_per_element = 2, .dispatcher = Dispatcher::kDeepEp};
  CostModel measured = MakeCostModel(AlphaBeta{1e-4, 1e-12});
  measured.fit = FitQuality{.interval_low_ratio = 1 / 1.02, .interval_high_ratio = 1.02};
  profile.collectives.push_back({deepep, measured});
  CrossoverRequest request = {.axis = CrossoverAxis::kMicroBatch, .values = {1, 2, 4, 8}};
  request.question.request.model = asked.model;
  request.question.request.gpus = 8;
  request.question.request.global_batch = 64;
  request.question.request.sequence_length = 1024;
  request.question.request.recompute = Recompute::kFull;
  request.question.layout = {.tensor_parallel = 2, .expert_parallel = 8};
  request.dispatchers = {Dispatcher::kAllToAll, Dispatcher::kDeepEp};
  const auto profile_of = [&](int) -> StatusOr<Profile> { return profile; };
  const auto crossover = FindCrossover(request, profile_of);
  ASSERT_TRUE(crossover.ok()) << crossover.status().message();
  ASSERT_EQ(crossover->points.size(), 4u);
  for (const CrossoverPoint& point : crossover->points) {
    ASSERT_TRUE(point.best && point.runner_up) << point.value << ": " << point.steps[0].reason;
    EXPECT_GE(point.ratio.ratio, 1);
    const bool first = *point.steps[0].step_s <= *point.steps[1].step_s;
    EXPECT_EQ(*point.best, first ? Dispatcher::kAllToAll : Dispatcher::kDeepEp);
  }
  ASSERT_EQ(crossover->flips.size(), 1u);
  EXPECT_EQ(crossover->flips[0].from, Dispatcher::kAllToAll);
  EXPECT_EQ(crossover->flips[0].to, Dispatcher::kDeepEp);
  EXPECT_LT(crossover->flips[0].before, crossover->flips[0].after);
}

TEST(CrossoverTest, WrongQuestionsAreRefused) {
  const AdviceRequest asked = RequestFor("qwen3-30b-a3b", 8, 64);
  const Profile profile = HardwareFor("h100-sxm", asked);
  const auto refusal = [&](auto change) {
    CrossoverRequest request = {.values = {1, 2}};
    request.question.request.model = asked.model;
    request.question.request.gpus = 8;
    request.question.request.global_batch = 64;
    request.question.request.sequence_length = 1024;
    change(request);
    return FindCrossover(request, [&](int) -> StatusOr<Profile> { return profile; }).status().message();
  };
  EXPECT_THAT(refusal([](auto& r) { r.values = {2, 1}; }), HasSubstr("axis: microBatch: found 1, expected rising"));
  EXPECT_THAT(refusal([](auto& r) { r.values = {1.5}; }), HasSubstr("whole numbers"));
  EXPECT_THAT(refusal([](auto& r) { r.values.clear(); }), HasSubstr("found 0 values"));
  EXPECT_THAT(refusal([](auto& r) { r.question.request.model = *NamedModel("llama3-8b"); }),
              HasSubstr("model: found no experts"));
  EXPECT_THAT(refusal([](auto& r) { r.values = {3}; }), HasSubstr("no dispatcher has a price at any value"));
}

}  // namespace
}  // namespace moeplan::planner
