#include "planner/layout/price_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <tuple>

#include "planner/layout/cost_book.h"
#include "planner/layout/layout_rules.h"
#include "planner/layout/layout_space.h"
#include "planner/layout/rank_layouts.h"
#include "planner/layout/step_time.h"
#include "tests/planner/by_hand.h"
#include "tests/planner/small_layouts.h"
#include "tests/planner/small_steps.h"

namespace moeplan::planner {
namespace {

using ::testing::HasSubstr;

// Prices each row of a ranking alone; returns how many pairs of a schedule and a number of pieces the rows have.
size_t ExpectRowsTakeAsLongAlone(const LayoutRequest& request, const LayoutAnswer& ranked) {
  std::set<std::pair<Family, int>> seen;
  for (const RankedLayout& row : ranked.layouts) {
    StepQuestion question = QuestionOf(request, row.layout, row.micro_batch);
    question.horizontal_contexts = row.horizontal_contexts;
    question.schedule = row.moe.family;
    question.chunks = row.moe.chunks;
    question.partition_degree = row.moe.partition_degree;
    seen.emplace(row.moe.family, std::max(row.moe.chunks, row.moe.partition_degree));
    const auto answer = PriceLayout(question, SmallProfile());
    EXPECT_TRUE(answer.ok()) << answer.status().message();
    if (!answer.ok()) continue;
    EXPECT_EQ(answer->layout, row);
    EXPECT_EQ(answer->missing_bytes, 0);
  }
  return seen.size();
}

TEST(PriceLayoutTest, EveryLayoutThatIsRankedTakesAsLongAskedAlone) {
  for (const int zero_stage : {0, 1, 3}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      LayoutRequest request = SmallRequest();
      request.top = 0;
      request.zero_stage = zero_stage;
      request.recompute = recompute;
      const auto ranked = RankLayouts(request, SmallProfile());
      ASSERT_TRUE(ranked.ok());
      ExpectRowsTakeAsLongAlone(request, *ranked);
      ASSERT_GT(ranked->layouts.size(), 20u);
    }
  }
}

// Samples so long that cutting a layer pays: rows differ in their schedules and pieces.
TEST(PriceLayoutTest, ARowCutInPiecesTakesAsLongAskedAlone) {
  LayoutRequest request = SmallRequest();
  request.sequence_length = 8192;
  request.top = 0;
  const auto ranked = RankLayouts(request, SmallProfile());
  ASSERT_TRUE(ranked.ok()) << ranked.status().message();
  EXPECT_GT(ExpectRowsTakeAsLongAlone(request, *ranked), 3u);
}

TEST(PriceLayoutTest, PartsSumToTheStepAndNothingIsExposedThatNobodyIsAt) {
  std::set<std::string> seen;
  for (const int zero_stage : {0, 2, 3}) {
    LayoutRequest request = SmallRequest();
    request.zero_stage = zero_stage;
    for (const LayoutPoint& point : AllLayoutPoints(request, SmallProfile().cluster)) {
      const auto answer = PriceLayout(QuestionAt(request, point), SmallProfile());
      ASSERT_TRUE(answer.ok()) << answer.status().message();
      const double step_s = answer->layout.step_time_s;
      EXPECT_NEAR(SumOf(*answer, &StepPartTime::exposed_s), step_s, 1e-9 * step_s);
      for (const StepPartTime& part : answer->parts) {
        seen.insert(part.part);
        EXPECT_GE(part.exposed_s, -1e-12 * step_s) << part.part;
        if (part.part == "bubble") continue;
        EXPECT_LE(part.exposed_s, (part.forward_s + part.backward_s) * (1 + 1e-9)) << part.part;
      }
      const StepPartTime* bubble = Find(*answer, "bubble");
      EXPECT_EQ(bubble != nullptr && bubble->exposed_s > 1e-9 * step_s, answer->layout.pipeline_bubble > 1e-9);
    }
  }
  EXPECT_THAT(seen, testing::UnorderedElementsAre("attention", "denseNetworks", "moeLayers", "elementwise", "logits",
                                                  "loss", "tensorExchange", "contextExchange", "pipelineExchange",
                                                  "weights", "gradients", "optimizer", "bubble"));
}

TEST(PriceLayoutTest, PartsAreThoseOfAllMicroBatchesOfTheSlowestStage) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer = {false, false, false, false};
  Profile profile = SmallProfile();
  for (CollectiveModel& entry : profile.collectives) entry.model = MakeCostModel(AlphaBeta{1e-30, 0});
  profile.kernels = {Line(Kernel::kExpertGemm, 0, 2)};  // 2 s a flop.
  const auto answer = PriceLayout(QuestionOf(request, {.pipeline_parallel = 2, .data_parallel = 4}), profile);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  // Four micro-batches of 64 tokens; the last stage has two layers and the logits.
  const double attention_s = 4 * 2 * 2 * 64.0 * (2 * kAttention + 2 * 64 * 64) / 1;
  EXPECT_NEAR(Find(*answer, "attention")->forward_s, attention_s, 1e-9 * attention_s);
  EXPECT_NEAR(Find(*answer, "attention")->backward_s, 2 * attention_s, 1e-9 * attention_s);
  EXPECT_NEAR(Find(*answer, "denseNetworks")->exposed_s, 3 * 4 * 2 * 2 * 64.0 * 2 * kDense, 1);
  EXPECT_NEAR(Find(*answer, "logits")->exposed_s, 3 * 4 * 2 * 64.0 * 2 * kVocabulary, 1);
  EXPECT_EQ(Find(*answer, "moeLayers"), nullptr);
  // The other stage once: two layers without the logits.
  const double bubble_s = 3 * 2 * 2 * 64.0 * (2 * kAttention + 2 * 64 * 64 + 2 * kDense);
  EXPECT_NEAR(Find(*answer, "bubble")->exposed_s, bubble_s, 1e-6 * bubble_s);
}

TEST(PriceLayoutTest, TheIntervalAddsIndependentErrorsInSquares) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer = {false, false, false, false};
  const auto with_errors = [&](double products, double sums) {
    Profile profile = SmallProfile();
    profile.kernels = {Line(Kernel::kExpertGemm, 0, 1e-9)};
    profile.collectives = {Line(Over(Collective::kAllReduce, {8, 4}), 1, 0)};  // A second for each slice of gradients.
    const auto err = [](CostModel& model, double ratio) {
      model.fit = FitQuality{.interval_low_ratio = 1 / ratio, .interval_high_ratio = ratio};
    };
    err(profile.kernels[0].model, products);
    err(profile.collectives[0].model, sums);
    const auto answer = PriceLayout(QuestionOf(request, {}), profile);
    EXPECT_TRUE(answer.ok()) << answer.status().message();
    return *answer;
  };
  // Of the logarithm of the step.
  const auto high = [](const StepAnswer& answer) { return std::log(answer.high_s / answer.layout.step_time_s); };
  const auto low = [](const StepAnswer& answer) { return std::log(answer.layout.step_time_s / answer.low_s); };
  // Without errors of parts, what their sum is known to miss.
  const StepAnswer exact = with_errors(1, 1);
  const double step_s = exact.layout.step_time_s, gradient_s = exact.layout.gradient_s, unexplained = std::log(1.037);
  EXPECT_NEAR(high(exact), unexplained, 1e-12);
  EXPECT_NEAR(low(exact), unexplained, 1e-12);
  ASSERT_GT(gradient_s, 3);
  // All four slices are longer by half; longer products hide more of the gradients.
  const StepAnswer of_sums = with_errors(1, 1.5);
  EXPECT_NEAR(high(of_sums), std::hypot(std::log1p(0.5 * 4 / step_s), unexplained), 1e-6);
  const StepAnswer of_products = with_errors(1.1, 1), both = with_errors(1.1, 1.5);
  EXPECT_GT(high(of_products), unexplained);
  EXPECT_LE(high(of_products), std::hypot(std::log1p(0.1 * (step_s - gradient_s) / step_s), unexplained) + 1e-9);
  const auto squares = [&](auto side) {
    return std::pow(side(of_sums), 2) + std::pow(side(of_products), 2) - std::pow(unexplained, 2);
  };
  EXPECT_NEAR(high(both), std::sqrt(squares(high)), 1e-9);
  EXPECT_NEAR(low(both), std::sqrt(squares(low)), 1e-9);
}

TEST(PriceLayoutTest, StepsWithExpertsAreLessSure) {
  const StepAnswer answer = *PriceLayout(QuestionOf(SmallRequest(), {}), SmallProfile());
  EXPECT_GE(std::log(answer.high_s / answer.layout.step_time_s), std::log(1.103) - 1e-12);
  EXPECT_GE(std::log(answer.layout.step_time_s / answer.low_s), std::log(1.103) - 1e-12);
}

TEST(PriceLayoutTest, AStepIsPricedFromWhatItConsistsOf) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer = {false, false, false, false};
  Profile profile = ProfileOfTheWholeStep();
  const auto products = PriceLayout(QuestionOf(request, {}), profile);
  ASSERT_TRUE(products.ok()) << products.status().message();
  // Two micro-batches of 64 tokens a GPU, four layers.
  const double tokens = 2 * 4 * 64.0, scores = 2 * 64 * 4 * 16.0;
  const auto near = [&](const StepAnswer& answer, const char* part, double forward_s, double backward_s) {
    ASSERT_NE(Find(answer, part), nullptr) << part;
    EXPECT_NEAR(Find(answer, part)->forward_s, forward_s, 1e-9 * forward_s) << part;
    EXPECT_NEAR(Find(answer, part)->backward_s, backward_s, 1e-9 * backward_s) << part;
  };
  near(*products, "attention", tokens * (2 * kAttention / 1e12 + scores / 5e11),
       tokens * (2 * 2 * kAttention / 5e11 + scores / 1e11));
  near(*products, "denseNetworks", tokens * 2 * kDense / 1e12, tokens * 2 * 2 * kDense / 5e11);
  near(*products, "logits", 2 * 64.0 * 2 * kVocabulary / 1e12, 2 * 64.0 * 2 * 2 * kVocabulary / 5e11);
  EXPECT_EQ(Find(*products, "elementwise"), nullptr);
  EXPECT_THAT(products->warnings, testing::Contains(HasSubstr("those that the profile lacks are counted as nothing")));

  // Each kernel that moves memory alone: what it adds.
  const double layer_rows = tokens * 32 * 2, rows = 2 * 64.0 * 32 * 2;
  const auto with = [&](Kernel kernel, double alpha_s, double beta_s) {
    Profile one = profile;
    one.kernels.push_back({{.kernel = kernel}, MakeCostModel(AlphaBeta{alpha_s, beta_s})});
    return *PriceLayout(QuestionOf(request, {}), one);
  };
  near(with(Kernel::kNorm, 0, 1), "elementwise", 2 * (2 * layer_rows + rows), 3 * (2 * layer_rows + rows));
  near(with(Kernel::kResidual, 0, 1), "elementwise", 3 * 2 * layer_rows, 3 * 2 * layer_rows);
  near(with(Kernel::kActivation, 0, 1), "elementwise", 2 * 2 * layer_rows, 3 * 2 * layer_rows);
  near(with(Kernel::kEmbedding, 0, 1), "elementwise", 2 * rows, 5 * rows);
  near(with(Kernel::kRotary, 1, 0), "elementwise", 2 * 4 * 2, 2 * 4 * 2);  // Two launches a layer, in seconds.
  near(with(Kernel::kCrossEntropy, 0, 1), "loss", 2 * 2 * 64 * 100 * 2, 2 * 2 * 64 * 100 * 2);
  const double parameters = 4 * (kAttention + kDense) + 2 * kVocabulary;
  EXPECT_NEAR(Find(with(Kernel::kOptimizer, 0, 1), "optimizer")->exposed_s, parameters * (12 + 34), 1e-3);
}

TEST(PriceLayoutTest, GradientsThatMayNotOverlapFollowTheBackwardPassWhole) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer = {false, false, false, false};
  request.overlaps_gradients = false;
  Profile profile = ProfileOfTheWholeStep();
  profile.collectives = {Line(Over(Collective::kAllReduce, {8, 4}), 7, 1)};
  const auto answer = PriceLayout(QuestionOf(request, {}), profile);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  // One call of FP32 gradients.
  const double parameters = 4 * (kAttention + kDense) + 2 * kVocabulary;
  EXPECT_NEAR(answer->layout.gradient_s, 7 + 4 * parameters, 1e-6);
}

TEST(PriceLayoutTest, SharedExpertsThatMayNotOverlapAreAPartOfTheirOwn) {
  LayoutRequest request = SmallRequest();
  request.model.shared_hidden_dim = 64;
  StepQuestion question = QuestionOf(request, {.expert_parallel = 4, .data_parallel = 8});
  const auto beside = PriceLayout(question, SmallProfile());
  question.request.overlaps_shared_experts = false;
  const auto after = PriceLayout(question, SmallProfile());
  ASSERT_TRUE(beside.ok() && after.ok());
  EXPECT_EQ(Find(*beside, "sharedExperts"), nullptr);
  ASSERT_NE(Find(*after, "sharedExperts"), nullptr);
  EXPECT_GT(Find(*after, "sharedExperts")->exposed_s, 0);
  EXPECT_LT(Find(*after, "moeLayers")->exposed_s, Find(*beside, "moeLayers")->exposed_s);
  // A bound of the experts' flops alone: what comes after them is not counted twice.
  Profile products = SmallProfile();
  for (CollectiveModel& entry : products.collectives) entry.model = MakeCostModel(AlphaBeta{1e-30, 0});
  products.kernels = {Line(Kernel::kExpertGemm, 0, 2)};
  question.schedule = Family::kBaseline;
  const auto exact = PriceLayout(question, products);
  ASSERT_TRUE(exact.ok());
  CostBook book(products, 32, 2);
  const LayoutPoint point = *PointOf(question.request, products.cluster, question.layout, 1);
  EXPECT_LE(LeastStepS(question.request, point, book), exact->layout.step_time_s * (1 + 1e-9));
}

TEST(PriceLayoutTest, ContextsThatExchangeHeadsSendQueriesKeysValuesAndOutputs) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer = {false, false, false, false};
  request.context_exchange = ContextExchange::kAllToAll;
  Profile profile = ProfileOfTheWholeStep();
  profile.collectives = {Line(Over(Collective::kAllToAll, {2, 2}), 1, 1),
                         Line(Over(Collective::kAllReduce, {8, 4}), 1e-30, 0)};
  const auto answer = PriceLayout(QuestionOf(request, {.context_parallel = 2, .data_parallel = 4}), profile);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  // Four micro-batches of 32 tokens, four layers; queries and outputs of 32 elements, keys and values of 16.
  const double pass_s = 4 * 4 * (4 + 32.0 * 2 * (32 + 16 + 16 + 32));
  EXPECT_NEAR(Find(*answer, "contextExchange")->forward_s, pass_s, 1e-6 * pass_s);
  EXPECT_NEAR(Find(*answer, "contextExchange")->exposed_s, 2 * pass_s, 1e-6 * pass_s);
}

// Local experts as linear layers: a profile without EXPERT_GEMM prices MoE layers, and the schedule stays what it was.
TEST(PriceLayoutTest, ExpertsArePricedAsGroupedLinearLayersWhereThoseWereMeasured) {
  Profile profile = ProfileOfTheWholeStep();
  StepQuestion question = QuestionOf(SmallRequest(), {});
  question.schedule = Family::kBaseline;
  const auto answer = PriceLayout(question, profile);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  // Two micro-batches, two layers, 64 tokens of two experts each; two products back for each there, half as fast.
  const double flops = 2 * 2 * 64.0 * 2 * 2 * kExpert;
  EXPECT_NEAR(Find(*answer, "moeLayers")->forward_s, flops / 1e12, 1e-6 * flops / 1e12);
  EXPECT_NEAR(Find(*answer, "moeLayers")->backward_s, 2 * flops / 5e11, 1e-6 * flops / 5e11);
}

// A millisecond a launch: far more than the kernels take.
TEST(PriceLayoutTest, WhereTheHostIsSlowerThanItsKernelsAStepTakesAsLongAsItLaunches) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer = {false, false};
  const StepQuestion question = QuestionOf(request, {.data_parallel = 8});
  Profile profile = SmallProfile();
  profile.collectives.push_back(Line(Over(Collective::kAllReduce, {8, 4}), 1e-6, 1e-12));
  const auto without = PriceLayout(question, profile);
  ASSERT_TRUE(without.ok()) << without.status().message();
  constexpr double kLaunchS = 1e-3;
  KernelModel launches = Line(Kernel::kHostLaunch, 0, kLaunchS);
  launches.model.size_high = 64;  // More of them take as much longer.
  profile.kernels.push_back(launches);
  const auto with = PriceLayout(question, profile);
  ASSERT_TRUE(with.ok()) << with.status().message();
  // Two layers: four linear layers, attention, and norms, residuals, rotary embedding of queries and of keys,
  // activation (2 + 2 + 2 + 1); the embedding, which scatters in two; the last norm, product and loss.
  const int forward = 2 * (4 + 1 + 7) + 1 + 3, backward = 2 * (2 * 4 + 1 + 7) + 2 + 4;
  const double host_s = 2 * (forward + backward) * kLaunchS;  // Of two micro-batches.
  const StepPartTime* host = Find(*with, "hostLaunches");
  ASSERT_NE(host, nullptr);
  EXPECT_NEAR(host->forward_s, 2 * forward * kLaunchS, 1e-9);
  EXPECT_NEAR(host->backward_s, 2 * backward * kLaunchS, 1e-9);
  const double update_s = Find(*with, "gradients")->exposed_s + Find(*with, "optimizer")->exposed_s;
  EXPECT_NEAR(with->layout.step_time_s, host_s + update_s, 1e-9);
  EXPECT_NEAR(SumOf(*with, &StepPartTime::exposed_s), with->layout.step_time_s, 1e-9);
  EXPECT_EQ(Find(*without, "hostLaunches"), nullptr);
  // Where kernels hide it, it costs nothing.
  profile.kernels.back() = Line(Kernel::kHostLaunch, 0, 1e-12);
  const auto hidden = PriceLayout(question, profile);
  EXPECT_NEAR(hidden->layout.step_time_s, without->layout.step_time_s, 1e-12);
  EXPECT_EQ(Find(*hidden, "hostLaunches")->exposed_s, 0);
}

// Two collectives over TP around attention and network forward, three backward; with the embedding one, and one with
// the logits forward, three with both backward.
TEST(PriceLayoutTest, CollectivesAreLaunchedOneByOne) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer = {false, false};
  Profile profile = SmallProfile();
  for (const Collective collective : {Collective::kAllGather, Collective::kReduceScatter}) {
    profile.collectives.push_back(Line(Over(collective, {2, 2}), 1e-9, 0));
  }
  profile.collectives.push_back(Line(Over(Collective::kAllReduce, {8, 4}), 1e-9, 0));
  profile.kernels.push_back(Line(Kernel::kHostLaunch, 0, 1));
  const auto launches = [&](int tensor) {
    const auto answer =
        PriceLayout(QuestionOf(request, {.tensor_parallel = tensor, .data_parallel = 8 / tensor}), profile);
    EXPECT_TRUE(answer.ok()) << answer.status().message();
    const StepPartTime* host = answer.ok() ? Find(*answer, "hostLaunches") : nullptr;
    return host == nullptr ? StepPartTime() : *host;
  };
  // Four micro-batches for two.
  EXPECT_NEAR(launches(2).forward_s - 2 * launches(1).forward_s, 4 * (2 * 2 * 2 + 2), 1e-6);
  EXPECT_NEAR(launches(2).backward_s - 2 * launches(1).backward_s, 4 * (2 * 2 * 3 + 3), 1e-6);
}

TEST(PriceLayoutTest, ChunksOfAnExchangeAreLaunchedOneByOne) {
  Profile profile = SmallProfile();
  profile.kernels.push_back(Line(Kernel::kHostLaunch, 0, 1));
  const auto launches = [&](int degree) {
    LayoutRequest request = SmallRequest();
    request.sequence_length = 1 << 16;  // Enough to be cut.
    StepQuestion question = QuestionOf(request, {.expert_parallel = 8, .data_parallel = 8});
    question.schedule = Family::kPipeline;
    question.partition_degree = degree;
    const auto answer = PriceLayout(question, profile);
    EXPECT_TRUE(answer.ok()) << answer.status().message();
    const StepPartTime* host = answer.ok() ? Find(*answer, "hostLaunches") : nullptr;
    return host == nullptr ? 0 : host->forward_s + host->backward_s;
  };
  EXPECT_GT(launches(4), launches(2));
}

// Generic entries are the executor's own kernels; a model's grouped products are those of the job's libraries.
TEST(PriceLayoutTest, ProductsOfAJobsLibrariesCountBeforeTheExecutorsOwn) {
  Profile profile = SmallProfile();
  const auto forward_s = [&] {
    const auto answer = PriceLayout(QuestionOf(SmallRequest(), {.expert_parallel = 8, .data_parallel = 8}), profile);
    EXPECT_TRUE(answer.ok()) << answer.status().message();
    return answer.ok() ? Find(*answer, "moeLayers")->forward_s : 0;
  };
  const double own_s = forward_s();
  for (const Kernel kernel : {Kernel::kLinear, Kernel::kLinearInputGradient, Kernel::kLinearWeightGradient}) {
    // A second a flop.
    profile.kernels.push_back(
        {{.kernel = kernel, .bytes_per_element = 2, .shape = {.in_features = 32, .out_features = 48, .experts = 1}},
         MakeCostModel(LogLog{{{1e3, 1e3}, {1e6, 1e6}}})});
  }
  EXPECT_GT(forward_s(), 1000 * own_s);
}

TEST(PriceLayoutTest, WhatDoesNotFitIsPricedAndSaysHowMuchIsMissing) {
  Profile profile = SmallProfile();
  const StepQuestion question = QuestionOf(SmallRequest(), {.expert_parallel = 4, .data_parallel = 8});
  const auto fits = PriceLayout(question, profile);
  ASSERT_TRUE(fits.ok()) << fits.status().message();
  profile.cluster.device_memory_bytes = 1000;
  const auto answer = PriceLayout(question, profile);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answer->missing_bytes, answer->layout.memory.total_bytes() - 1000);
  EXPECT_LE(answer->layout.memory.total_bytes(), fits->layout.memory.total_bytes());
  EXPECT_GT(answer->layout.step_time_s, 0);
}

TEST(PriceLayoutTest, AScheduleIsThatOneOrRefused) {
  StepQuestion question = QuestionOf(SmallRequest(), {.expert_parallel = 4, .data_parallel = 8});
  for (const Family family : {Family::kBaseline, Family::kPipeline, Family::kMontaO2}) {
    question.schedule = family;
    const auto answer = PriceLayout(question, SmallProfile());
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    EXPECT_EQ(answer->layout.moe.family, family);
  }
  question.chunks = 3;  // Too small a layer to be cut.
  EXPECT_THAT(PriceLayout(question, SmallProfile()).status().message(),
              HasSubstr("schedule: found MONTA_O2, of which no plan with such a number of chunks"));
}

// All degrees up to 8 of a model whose numbers have several divisors: those that are refused are those that the
// enumeration leaves out.
TEST(LayoutRulesTest, TheEnumerationLeavesOutWhatIsRefused) {
  const Cluster cluster = SmallProfile().cluster;
  for (const int virtual_stages : {1, 2}) {
    LayoutRequest request = SmallRequest();
    request.virtual_stages = virtual_stages;
    using Degrees = std::tuple<int, int, int, int, int, int>;
    std::set<Degrees> enumerated, allowed;
    for (const LayoutPoint& point : AllLayoutPoints(request, cluster)) {
      const Layout& at = point.layout;
      enumerated.emplace(at.tensor_parallel, at.expert_parallel, at.expert_sharding_parallel, at.context_parallel,
                         at.pipeline_parallel, point.micro_batch);
      const auto same = PointOf(request, cluster, at, point.micro_batch, point.horizontal_contexts);
      ASSERT_TRUE(same.ok()) << same.status().message();
      EXPECT_EQ(*same, point);
    }
    for (int tensor = 1; tensor <= 8; ++tensor)
      for (int experts = 1; experts <= 8; ++experts)
        for (int sharding = 1; sharding <= 8; ++sharding)
          for (int contexts = 1; contexts <= 8; ++contexts)
            for (int pipeline = 1; pipeline <= 8; ++pipeline)
              for (const int micro_batch : {1, 2, 4, 8, 16}) {
                const Layout layout = {tensor, experts, sharding, contexts, pipeline};
                if (!PointOf(request, cluster, layout, micro_batch).ok()) continue;
                allowed.emplace(tensor, experts, sharding, contexts, pipeline, micro_batch);
              }
    EXPECT_EQ(allowed, enumerated) << virtual_stages;
    EXPECT_GT(allowed.size(), 20u);
  }
}

// Both orientations of contexts are enumerated where, and only where, each may be asked for.
TEST(LayoutRulesTest, ContextsMayLieAcrossWhereTheEnumerationHasThem) {
  const Cluster cluster = SmallProfile().cluster;
  const LayoutRequest request = SmallRequest();
  const std::vector<LayoutPoint> points = AllLayoutPoints(request, cluster);
  int across = 0;
  for (const LayoutPoint& along : points) {
    if (along.horizontal_contexts) continue;
    const auto asked = PointOf(request, cluster, along.layout, along.micro_batch, /*horizontal_contexts=*/true);
    LayoutPoint other = along;
    other.horizontal_contexts = true;
    other.network_scale = along.layout.expert_parallel * along.layout.context_parallel;
    EXPECT_EQ(asked.ok(), std::ranges::count(points, other) == 1);
    if (asked.ok()) ++across;
    EXPECT_EQ(asked.ok() ? *asked : other, other);
    // Nothing said is MoNTA's rule.
    const bool of_rule = asked.ok() && along.layout.context_parallel < along.layout.expert_parallel;
    EXPECT_EQ(PointOf(request, cluster, along.layout, along.micro_batch)->horizontal_contexts, of_rule);
  }
  EXPECT_GT(across, 5);
  // The ranks of experts are those of TP: of one rank beside them, both orientations are the same.
  StepQuestion question = QuestionOf(request, {4, 4, 1, 2, 1, 1});
  question.horizontal_contexts = true;
  EXPECT_THAT(
      PriceLayout(question, SmallProfile()).status().message(),
      HasSubstr("layout.horizontalContexts: found true, expected it where contextParallel 2 and expertParallel 4 "
                "are above 1, and EP·ESP over TP is a whole number above 1 that divides dataParallel 1"));
  // The network has no room for 4 · 2 ranks.
  question.layout = {1, 4, 1, 2, 1, 4};
  EXPECT_TRUE(PriceLayout(question, SmallProfile()).ok());
  question.request.max_network_scale = 7;
  EXPECT_THAT(PriceLayout(question, SmallProfile()).status().message(),
              HasSubstr("and EP·CP 8 is at most the 7 ranks that the network joins"));
}

TEST(LayoutRulesTest, TheRuleThatIsBrokenIsNamed) {
  const auto error = [](const Layout& layout, int micro_batch = 1) {
    return PriceLayout(QuestionOf(SmallRequest(), layout, micro_batch), SmallProfile()).status().message();
  };
  EXPECT_THAT(
      error({.pipeline_parallel = 3}),
      HasSubstr("layout.pipelineParallel: found 3, expected a divisor of 8 GPUs, 1 times which is at most 4 layers"));
  EXPECT_THAT(error({.tensor_parallel = 8}),
              HasSubstr("layout.tensorParallel: found 8, expected a divisor of the 4 GPUs"));
  EXPECT_THAT(error({.context_parallel = 3}), HasSubstr("layout.contextParallel: found 3"));
  EXPECT_THAT(error({.expert_parallel = 3}),
              HasSubstr("layout.expertParallel: found 3, expected a divisor of 8 experts"));
  EXPECT_THAT(error({.expert_sharding_parallel = 3}), HasSubstr("layout.expertShardingParallel: found 3"));
  EXPECT_THAT(error({.data_parallel = 4}), HasSubstr("layout.dataParallel: found 4, expected 8, which fills 8 GPUs"));
  EXPECT_THAT(error({}, 3),
              HasSubstr("layout.microBatch: found 3, expected a divisor of the 16 samples of 8 replicas"));
  EXPECT_THAT(error({.tensor_parallel = 0}), HasSubstr("layout.tensorParallel: found 0, expected at least 1"));
  LayoutRequest request = SmallRequest();
  const auto of_request = [&](const Layout& layout, int micro_batch = 1) {
    return PriceLayout(QuestionOf(request, layout, micro_batch), SmallProfile()).status().message();
  };
  request.virtual_stages = 2;
  EXPECT_THAT(of_request({}), HasSubstr("layout.virtualStages: found 2, expected 1 where pipelineParallel is 1"));
  EXPECT_THAT(of_request({.pipeline_parallel = 4}), HasSubstr("layout.virtualStages: found 2, expected at most 1"));
  // 4 replicas have 4 samples each; two of them at once are two micro-batches, four are one.
  EXPECT_EQ(of_request({.pipeline_parallel = 2}, 2), "");
  EXPECT_THAT(of_request({.pipeline_parallel = 2}, 4),
              HasSubstr("expected 1, since the 1 micro-batches are no multiple of 2 stages"));
  request.virtual_stages = 1;
  request.context_exchange = ContextExchange::kAllToAll;
  EXPECT_EQ(of_request({.context_parallel = 4}), "");
  EXPECT_THAT(of_request({.context_parallel = 8}),
              HasSubstr("layout.contextParallel: found 8, expected a divisor of the 4 heads of a rank"));
  request.model.top_k = 9;
  EXPECT_EQ(of_request({}), "topK: found 9, expected a whole number of 1 to 8");
}

}  // namespace
}  // namespace moeplan::planner
