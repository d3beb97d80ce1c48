// How a step compares with another, and how it changes with windows of attention, layers that predict further tokens,
// layers that are computed again, and exchanges over TP beside products: by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "models/step/kept_memory.h"
#include "planner/layout/layout_space.h"
#include "planner/layout/price_layout.h"
#include "planner/layout/rank_memory.h"
#include "planner/layout/stages.h"
#include "planner/layout/step_time.h"
#include "tests/planner/small_layouts.h"
#include "tests/planner/small_steps.h"

namespace moeplan::planner {
namespace {

using ::testing::HasSubstr;

LayoutRequest DenseRequest() {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer = {false, false, false, false};
  return request;
}

StepAnswer Priced(const LayoutRequest& request, const Layout& layout, const Profile& profile) {
  const auto answer = PriceLayout(QuestionOf(request, layout), profile);
  EXPECT_TRUE(answer.ok()) << answer.status().message();
  return answer.ok() ? *answer : StepAnswer();
}

double ForwardS(const StepAnswer& answer, const char* part) {
  const StepPartTime* found = Find(answer, part);
  return found == nullptr ? 0 : found->forward_s;
}

// Three of four layers see 16 of 64 tokens: 2·64·16 - 16² of 64² pairs.
TEST(StepVariantsTest, LayersWithAWindowComputeWhatTheirTokensSee) {
  const Profile profile = ProfileOfTheWholeStep();
  LayoutRequest request = DenseRequest();
  const double whole_s = ForwardS(Priced(request, {}, profile), "attention");
  request.model.window = 16;
  request.model.windowed_layer = {true, true, false, true};
  const double windowed_s = ForwardS(Priced(request, {}, profile), "attention");
  const double scores_s = 2 * 64.0 * 2 * 64 * 4 * 16 / 5e11;  // Of one layer; two micro-batches.
  EXPECT_NEAR(whole_s - windowed_s, 3 * scores_s * (1 - 7.0 / 16), 1e-9 * whole_s);
  // A window as long as the sequence is none, and stored scores are computed whole.
  request.model.window = 64;
  EXPECT_DOUBLE_EQ(ForwardS(Priced(request, {}, profile), "attention"), whole_s);
  request.attention = AttentionKernel::kStored;
  const double stored_s = ForwardS(Priced(request, {}, profile), "attention");
  request.model.window = 16;
  EXPECT_DOUBLE_EQ(ForwardS(Priced(request, {}, profile), "attention"), stored_s);
}

TEST(StepVariantsTest, FlopsOfATokenCountWhatAWindowLeaves) {
  ModelConfig model = SmallModel();
  const double whole = ModelFlopsPerToken(model, 64);
  model.window = 16;
  model.windowed_layer = {true, false, false, false};
  EXPECT_NEAR(whole - ModelFlopsPerToken(model, 64), 2 * 64 * 64 * (1 - 7.0 / 16), 1e-9 * whole);
  model.window = 64;
  EXPECT_DOUBLE_EQ(ModelFlopsPerToken(model, 64), whole);
}

TEST(StepVariantsTest, LayersThatPredictFurtherTokensLieOnTheLastStage) {
  const Profile profile = ProfileOfTheWholeStep();
  LayoutRequest request = DenseRequest();
  const Layout halves = {.pipeline_parallel = 2, .data_parallel = 4};
  const StepAnswer without = Priced(request, halves, profile);
  request.next_tokens = 1;
  const StepAnswer with = Priced(request, halves, profile);
  // Four micro-batches of 64 tokens; the last stage has two layers, the logits, and now a layer, a product from 64 to
  // 32 and the logits once more.
  const double rows = 4 * 64.0;
  const double layer_s = rows * (2 * kAttention / 1e12 + 2 * 64 * 4 * 16 / 5e11);
  EXPECT_NEAR(ForwardS(with, "attention") - ForwardS(without, "attention"), layer_s, 1e-9 * layer_s);
  EXPECT_NEAR(ForwardS(with, "denseNetworks"), 1.5 * ForwardS(without, "denseNetworks"), 1e-15);
  const double more_s = rows * 2 * (kVocabulary + 2 * 32 * 32) / 1e12;
  EXPECT_NEAR(ForwardS(with, "logits") - ForwardS(without, "logits"), more_s, 1e-9 * more_s);
  EXPECT_NEAR(SumOf(with, &StepPartTime::exposed_s), with.layout.step_time_s, 1e-9 * with.layout.step_time_s);
  const std::vector<Stage> stages = StagesOf(request, 2);
  EXPECT_EQ(stages[0].next_tokens, 0);
  EXPECT_EQ(stages[1].next_tokens, 1);
  const double parameters = StageDenseParameters(request.model, stages[1]) -
                            StageDenseParameters(request.model, {.layers = 2, .predicts = true});
  // It looks tokens up, so its stage has the embedding's matrix, too.
  EXPECT_EQ(parameters, kAttention + kDense + 2 * 32 * 32 + kVocabulary);
  EXPECT_EQ(ModelFlopsPerToken(request.model, 64, 1) - ModelFlopsPerToken(request.model, 64, 0),
            2 * (kAttention + kDense + kVocabulary + 2 * 32 * 32) + 2 * 64 * 64);
}

// The model's last layers have experts, and so has the one behind them.
TEST(StepVariantsTest, TheFurtherLayerIsLikeTheLast) {
  LayoutRequest request = SmallRequest();
  const StepAnswer without = Priced(request, {}, SmallProfile());
  request.next_tokens = 2;
  const StepAnswer with = Priced(request, {}, SmallProfile());
  EXPECT_NEAR(ForwardS(with, "moeLayers"), 2 * ForwardS(without, "moeLayers"), 1e-9 * ForwardS(with, "moeLayers"));
  EXPECT_NEAR(ForwardS(with, "denseNetworks"), ForwardS(without, "denseNetworks"), 1e-15);
  const std::vector<Stage> stages = StagesOf(request, 1);
  EXPECT_EQ(StageExpertParameters(request.model, stages[0]), 4 * 8 * kExpert);
  // Logits are kept for each token that is predicted.
  EXPECT_NEAR(with.layout.memory.logit_bytes, 3 * without.layout.memory.logit_bytes, 1e-6);
  EXPECT_GT(with.layout.memory.kept_bytes, without.layout.memory.kept_bytes * 1.5);
}

TEST(StepVariantsTest, OnlyTheFirstLayersOfEachStageAreComputedAgain) {
  const Profile profile = ProfileOfTheWholeStep();
  LayoutRequest request = DenseRequest();
  const auto step = [&](Recompute recompute, int layers) {
    request.recompute = recompute;
    request.recompute_layers = layers;
    return Priced(request, {}, profile);
  };
  const StepAnswer none = step(Recompute::kNone, 0), all = step(Recompute::kFull, 0);
  for (const int layers : {1, 3}) {
    const StepAnswer some = step(Recompute::kFull, layers);
    const double share = layers / 4.0;
    EXPECT_NEAR(some.layout.step_time_s, share * all.layout.step_time_s + (1 - share) * none.layout.step_time_s,
                1e-9 * all.layout.step_time_s);
    EXPECT_NEAR(some.layout.memory.kept_bytes,
                share * all.layout.memory.kept_bytes + (1 - share) * none.layout.memory.kept_bytes, 1e-6);
  }
  EXPECT_EQ(step(Recompute::kFull, 4).layout, all.layout);
  // Of each virtual stage.
  request.virtual_stages = 2;
  const std::vector<Stage> stages = StagesOf(request, 2);
  EXPECT_EQ(stages[0].again.layers, 2);
  request.recompute_layers = 1;
  request.model.moe_layer = {false, true, false, false, true, false, true, true};
  request.model.window = 8;
  request.model.windowed_layer = {true, false, false, false, false, true, true, true};
  // Two layers in each of four; the first of the first and of the third go to one rank.
  EXPECT_EQ(StagesOf(request, 2)[0].again,
            (Stage::Again{.layers = 2, .moe_layers = 1, .windowed_layers = 1, .inputs = 2, .together = 1}));
  request.virtual_stages = 1;
  request.model = DenseRequest().model;
  request.recompute = Recompute::kNone;
  request.recompute_layers = 1;
  EXPECT_THAT(PriceLayout(QuestionOf(request, {}), profile).status().message(),
              HasSubstr("recomputeLayers: found them without recompute FULL"));
  request.recompute = Recompute::kFull;
  request.recompute_layers = 5;
  EXPECT_THAT(PriceLayout(QuestionOf(request, {}), profile).status().message(),
              HasSubstr("recomputeLayers: found 5, expected a whole number of 0 to 4"));
}

// Uniform recomputation in chunks takes as long as layer by layer. It keeps an input for each chunk, and all of the
// chunk that is on its way back.
TEST(StepVariantsTest, LayersThatAreComputedAgainTogetherKeepOneInput) {
  const Profile profile = ProfileOfTheWholeStep();
  LayoutRequest request = DenseRequest();
  request.recompute = Recompute::kFull;
  const auto step = [&](int chunk) {
    request.recompute_chunk = chunk;
    return Priced(request, {}, profile);
  };
  request.model.vocab = 0;  // Logits take no room.
  const StepAnswer one = step(1);
  request.recompute = Recompute::kNone;
  const double input = one.layout.memory.kept_bytes / 4, layer = step(1).layout.memory.kept_bytes / 4;
  request.recompute = Recompute::kFull;
  for (const auto& [chunk, inputs] : {std::pair(1, 4), {2, 2}, {3, 2}, {4, 1}}) {
    const StepAnswer some = step(chunk);
    EXPECT_EQ(some.layout.step_time_s, one.layout.step_time_s);
    EXPECT_NEAR(some.layout.memory.kept_bytes, inputs * input, 1e-6) << chunk;
    EXPECT_NEAR(some.layout.memory.running_bytes + some.layout.memory.logit_bytes, chunk * layer - input, 1e-6 * layer)
        << chunk;
  }
  // Chunks do not reach over virtual stages.
  request.virtual_stages = 2;
  EXPECT_EQ(StagesOf(request, 2)[0].again, (Stage::Again{.layers = 2, .inputs = 2, .together = 1}));
  request.virtual_stages = 1;
  EXPECT_EQ(StagesOf(request, 2)[0].again, (Stage::Again{.layers = 2, .inputs = 1, .together = 2}));
  const auto refusal = [&] { return PriceLayout(QuestionOf(request, {}), profile).status().message(); };
  request.recompute_chunk = 0;
  EXPECT_THAT(refusal(), HasSubstr("recomputeChunk: found 0, expected a whole number of 1 to "));
  request.recompute_chunk = 99;  // A chunk ends with its stage.
  EXPECT_EQ(StagesOf(request, 2)[0].again, (Stage::Again{.layers = 2, .inputs = 1, .together = 2}));
  EXPECT_EQ(refusal(), "");
  request.recompute_chunk = 2, request.recompute_layers = 1;
  EXPECT_THAT(refusal(), HasSubstr("recomputeChunk: found 2 with recomputeLayers 1, expected 1"));
  request.recompute_layers = 0, request.recompute = Recompute::kNone;
  EXPECT_THAT(refusal(), HasSubstr("recomputeChunk: found 2 without recompute FULL, expected 1"));
}

// By the parts' own times: a profile of products, scores and, at 1 s a byte, norms and activations.
TEST(StepVariantsTest, SelectedPartsRunOnceMoreBeforeTheirBackwardPass) {
  Profile profile = ProfileOfTheWholeStep();
  profile.kernels.push_back({{.kernel = Kernel::kNorm}, MakeCostModel(AlphaBeta{0, 1})});
  profile.kernels.push_back({{.kernel = Kernel::kActivation}, MakeCostModel(AlphaBeta{0, 1e3})});
  LayoutRequest request = DenseRequest();
  const StepAnswer none = Priced(request, {}, profile);
  request.recompute = Recompute::kSelective;
  const auto more_s = [&](RecomputeModules modules) {
    request.recompute_modules = modules;
    const StepAnswer answer = Priced(request, {}, profile);
    EXPECT_NEAR(SumOf(answer, &StepPartTime::exposed_s), answer.layout.step_time_s, 1e-9 * answer.layout.step_time_s);
    return answer.layout.step_time_s - none.layout.step_time_s;
  };
  // Two micro-batches of 64 tokens; four layers.
  const double times = 2 * 4 * 64, step_s = none.layout.step_time_s;
  const double scores_s = times * 2 * 64 * 4 * 16 / 5e11, row_bytes = 2 * 32, hidden_bytes = 2 * 64;
  EXPECT_NEAR(more_s({}), scores_s, 1e-9 * step_s);
  EXPECT_NEAR(more_s({RecomputeModule::kCoreAttention}), scores_s, 1e-9 * step_s);
  // Two norms a layer, read and written.
  EXPECT_NEAR(more_s({RecomputeModule::kLayerNorm}), times * 2 * 2 * row_bytes, 1e-9 * step_s);
  const double network_s = times * (2 * kDense / 1e12 + 1e3 * 2 * hidden_bytes);
  EXPECT_NEAR(more_s({RecomputeModule::kMlp}), network_s, 1e-9 * step_s);
  EXPECT_NEAR(more_s({RecomputeModule::kMlp, RecomputeModule::kCoreAttention}), network_s + scores_s, 1e-9 * step_s);
  // A dense model has no experts to compute again.
  EXPECT_NEAR(more_s({RecomputeModule::kMoe, RecomputeModule::kMoeAct}), 0, 1e-9 * step_s);
}

TEST(StepVariantsTest, ExpertsAreComputedAgainAsTheyWere) {
  LayoutRequest request = SmallRequest();
  const StepAnswer none = Priced(request, {.expert_parallel = 4, .data_parallel = 8}, SmallProfile());
  request.recompute = Recompute::kSelective;
  request.recompute_modules = {RecomputeModule::kMoe};
  const StepAnswer again = Priced(request, {.expert_parallel = 4, .data_parallel = 8}, SmallProfile());
  EXPECT_NEAR(Find(again, "moeLayers")->backward_s - Find(none, "moeLayers")->backward_s, ForwardS(none, "moeLayers"),
              1e-9 * none.layout.step_time_s);
  EXPECT_LT(again.layout.memory.kept_bytes, none.layout.memory.kept_bytes);
  request.recompute = Recompute::kNone;
  EXPECT_THAT(PriceLayout(QuestionOf(request, {}), SmallProfile()).status().message(),
              HasSubstr("recomputeModules: found some without recompute SELECTIVE"));
  request.recompute = Recompute::kSelective;
  request.recompute_modules = {RecomputeModule::kMlaUpProj};
  EXPECT_THAT(PriceLayout(QuestionOf(request, {}), SmallProfile()).status().message(),
              HasSubstr("recomputeModules: found MLA_UP_PROJ, expected it of a model with latent attention"));
}

// A network that is computed again exchanges over its ranks again.
TEST(StepVariantsTest, WhatIsComputedAgainExchangesAgain) {
  Profile profile = ProfileOfTheWholeStep();
  for (const Collective collective : {Collective::kAllGather, Collective::kReduceScatter}) {
    profile.collectives.push_back(Line(Over(collective, {2, 2}), 1e-3, 0));
  }
  const Layout pairs = {.tensor_parallel = 2, .data_parallel = 4};
  LayoutRequest request = DenseRequest();
  const StepAnswer none = Priced(request, pairs, profile);
  request.recompute = Recompute::kSelective;
  request.recompute_modules = {RecomputeModule::kMlp};
  const StepAnswer again = Priced(request, pairs, profile);
  // Four micro-batches of four layers, a gather and a scatter each.
  EXPECT_NEAR(Find(again, "tensorExchange")->backward_s - Find(none, "tensorExchange")->backward_s, 4 * 4 * 2e-3, 1e-9);
  EXPECT_NEAR(Find(again, "tensorExchange")->exposed_s - Find(none, "tensorExchange")->exposed_s, 4 * 4 * 2e-3, 1e-9);
}

TEST(StepVariantsTest, ExpertsThatAreComputedAgainTakeTheirPartsWithThem) {
  LayoutRequest request = SmallRequest();
  request.model.shared_hidden_dim = 48;
  request.recompute = Recompute::kSelective;
  request.overlaps_shared_experts = false;
  const auto with = [&](RecomputeModules modules) {
    request.recompute_modules = modules;
    return Priced(request, {.expert_parallel = 4, .data_parallel = 8}, SmallProfile());
  };
  const StepAnswer whole = with({RecomputeModule::kMoe});
  const StepAnswer named = with({RecomputeModule::kMoe, RecomputeModule::kSharedExperts, RecomputeModule::kMoeAct});
  EXPECT_EQ(whole.layout.step_time_s, named.layout.step_time_s);
  EXPECT_EQ(whole.layout.memory, named.layout.memory);
  EXPECT_GT(Find(whole, "sharedExperts")->backward_s, Find(with({}), "sharedExperts")->backward_s);
  request.overlaps_shared_experts = true;
  request.recompute_modules = {RecomputeModule::kSharedExperts};
  EXPECT_THAT(PriceLayout(QuestionOf(request, {}), SmallProfile()).status().message(),
              HasSubstr("recomputeModules: found SHARED_EXPERTS with overlapSharedExperts"));
}

// A shared expert as wide as a routed one is one product of its rows, not a group of all local experts.
TEST(StepVariantsTest, ASharedExpertAsWideAsARoutedOneIsPricedAsItself) {
  Profile profile = ProfileOfTheWholeStep();
  for (CollectiveModel& entry : profile.collectives) entry.model = MakeCostModel(AlphaBeta{1e-30, 0});
  // Groups of several are slow, whatever they multiply.
  const auto add = [&](Kernel kernel, int experts, double flops_per_s) {
    LogLog curve;
    for (double flops = 1; flops < 5e8; flops *= 2) curve.points.push_back({flops, flops / flops_per_s});
    const KernelShape shape = {.in_features = 32, .out_features = 48, .experts = experts};
    profile.kernels.push_back({{.kernel = kernel, .shape = shape}, MakeCostModel(curve)});
  };
  for (const Kernel kernel : {Kernel::kLinear, Kernel::kLinearInputGradient, Kernel::kLinearWeightGradient}) {
    add(kernel, 8, 1e9), add(kernel, 1, 1e12);
  }
  LayoutRequest request = SmallRequest();
  const auto moe_s = [&](int shared_hidden_dim) {
    request.model.shared_hidden_dim = shared_hidden_dim;
    return Priced(request, {.data_parallel = 8}, profile).layout.moe_layer_s;
  };
  // What is twice as wide takes at least as long.
  EXPECT_LE(moe_s(48), moe_s(96));
  EXPECT_GT(moe_s(48), moe_s(0));
}

// BF16 halves what is summed and kept of gradients.
TEST(StepVariantsTest, GradientsOfTwoBytesAreHalfOfThoseOfFour) {
  LayoutRequest request = DenseRequest();
  request.zero_stage = 0;
  request.overlaps_gradients = false;
  Profile profile = ProfileOfTheWholeStep();
  profile.collectives = {Line(Over(Collective::kAllReduce, {8, 4}), 0, 1)};
  const StepAnswer fp32 = Priced(request, {.data_parallel = 8}, profile);
  request.gradient_bytes = 2;
  const StepAnswer bf16 = Priced(request, {.data_parallel = 8}, profile);
  EXPECT_NEAR(fp32.layout.gradient_s, 2 * bf16.layout.gradient_s, 1e-9 * fp32.layout.gradient_s);
  EXPECT_NEAR(fp32.layout.memory.gradient_bytes, 2 * bf16.layout.memory.gradient_bytes, 1e-6);
  EXPECT_EQ(fp32.layout.memory.optimizer_bytes, bf16.layout.memory.optimizer_bytes);
}

// What a product reads is gathered in its precision; what it makes is summed in BF16.
TEST(StepVariantsTest, ProductsInLessThanBf16GatherLess) {
  Profile profile = ProfileOfTheWholeStep();
  profile.collectives.push_back(Line(Over(Collective::kAllGather, {2, 2}), 0, 1));
  profile.collectives.push_back(Line(Over(Collective::kReduceScatter, {2, 2}), 0, 1e-30));
  const Layout pairs = {.tensor_parallel = 2, .data_parallel = 4};
  LayoutRequest request = DenseRequest();
  const double bf16_s = ForwardS(Priced(request, pairs, profile), "tensorExchange");
  request.precision = Precision::kFp8;
  const double fp8_s = ForwardS(Priced(request, pairs, profile), "tensorExchange");
  // Four micro-batches of rows of 64 bytes; two gathers in each of four layers, and that before the logits, in BF16.
  const double rows_s = 4 * 64 * 64;
  EXPECT_NEAR(bf16_s, rows_s * (4 * 2 + 1), 1e-6 * bf16_s);
  EXPECT_NEAR(fp8_s, rows_s * (4 * 2 / 2.0 + 1), 1e-6 * fp8_s);
}

// Products of 1e12 flop/s hide an exchange but for its first piece of two; where it is longer, what is longer counts.
TEST(StepVariantsTest, ProductsHideExchangesOverTheirRanksButForTheFirstPiece) {
  LayoutRequest request = DenseRequest();
  const Layout pairs = {.tensor_parallel = 2, .data_parallel = 4};
  for (const double exchange_s : {1e-9, 1e-3}) {
    Profile profile = ProfileOfTheWholeStep();
    for (const Collective collective : {Collective::kAllGather, Collective::kReduceScatter}) {
      profile.collectives.push_back(Line(Over(collective, {2, 2}), exchange_s, 0));
    }
    request.overlaps_tensor = false;
    const StepAnswer plain = Priced(request, pairs, profile);
    request.overlaps_tensor = true;
    const StepAnswer beside = Priced(request, pairs, profile);
    // Busy it is as long as before.
    EXPECT_NEAR(ForwardS(beside, "tensorExchange"), ForwardS(plain, "tensorExchange"), 1e-15);
    // Four micro-batches of four layers: of attention and of the network two exchanges forward, three backward.
    const double blocks = 4 * 4, forward_s = 2 * exchange_s, backward_s = 3 * exchange_s;
    const double attention_s = 64.0 * 2 * kAttention / 2 / 1e12, network_s = 64.0 * 2 * kDense / 2 / 1e12;
    const auto waits = [&](double time_s, double product_s) { return std::max(time_s / 2, time_s - product_s); };
    // The embedding and the logits stay as they are.
    const double hidden_s =
        blocks * (2 * forward_s - waits(forward_s, attention_s) - waits(forward_s, network_s) + 2 * backward_s -
                  waits(backward_s, 4 * attention_s) - waits(backward_s, 4 * network_s));
    EXPECT_NEAR(plain.layout.step_time_s - beside.layout.step_time_s, hidden_s, 1e-6 * hidden_s) << exchange_s;
    EXPECT_NEAR(SumOf(beside, &StepPartTime::exposed_s), beside.layout.step_time_s, 1e-9 * beside.layout.step_time_s);
  }
}

TEST(StepVariantsTest, NothingIsFasterThanItsBoundWithAnyOfThem) {
  const Profile profile = SmallProfile();
  for (const int variant : {0, 1, 2, 3}) {
    LayoutRequest request = SmallRequest();
    if (variant == 0) request.model.window = 8, request.model.windowed_layer = {true, true, true, true};
    if (variant == 1) request.next_tokens = 1;
    if (variant == 2) request.recompute = Recompute::kFull, request.recompute_layers = 1;
    if (variant == 3) request.overlaps_tensor = true;
    CostBook book(profile, request.model.model_dim, request.bytes_per_element);
    for (const LayoutPoint& point : AllLayoutPoints(request, profile.cluster)) {
      const auto answer = PriceLayout(QuestionAt(request, point), profile);
      ASSERT_TRUE(answer.ok()) << answer.status().message();
      EXPECT_LE(LeastStepS(request, point, book), answer->layout.step_time_s * (1 + 1e-9)) << variant;
    }
  }
}

// ---- Two layouts beside each other.

double StepS(const StepQuestion& question, const Profile& profile) {
  const auto answer = PriceLayout(question, profile);
  EXPECT_TRUE(answer.ok()) << answer.status().message();
  return answer.ok() ? answer->layout.step_time_s : 0;
}

// Products that err by half and an exchange that errs by a fifth.
Profile WithErrors(double products, double gathers) {
  const auto with = [](KernelModel entry, double ratio) {
    entry.model.fit = FitQuality{.interval_low_ratio = 1 / ratio, .interval_high_ratio = ratio};
    return entry;
  };
  Profile profile = SmallProfile();
  profile.kernels = {with(Line(Kernel::kExpertGemm, 0, 1e-9), products)};
  for (const Collective collective : {Collective::kAllGather, Collective::kReduceScatter}) {
    CollectiveModel entry = Line(Over(collective, {2, 2}), 1e-3, 0);
    entry.model.fit = FitQuality{.interval_low_ratio = 1 / gathers, .interval_high_ratio = gathers};
    profile.collectives.push_back(entry);
  }
  return profile;
}

constexpr double kBetweenDense = 1.031, kBetweenWithExperts = 1.057;  // price_layout.cc

TEST(CompareLayoutsTest, TheSameTwiceIsOneForSure) {
  const StepQuestion question = QuestionOf(SmallRequest(), {.expert_parallel = 4, .data_parallel = 8});
  const auto ratio = CompareLayouts(question, question, SmallProfile());
  ASSERT_TRUE(ratio.ok()) << ratio.status().message();
  EXPECT_EQ(ratio->ratio, 1);
  EXPECT_EQ(ratio->low, 1);
  EXPECT_EQ(ratio->high, 1);
}

// Both steps are products alone, whose error is of both alike.
TEST(CompareLayoutsTest, ErrorsThatBothHaveCancel) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer = {false, false, false, false};
  Profile profile = WithErrors(1.5, 1.2);
  for (CollectiveModel& entry : profile.collectives) entry.model = MakeCostModel(AlphaBeta{1e-30, 0});
  const StepQuestion one = QuestionOf(request, {.data_parallel = 8}),
                     other = QuestionOf(request, {.pipeline_parallel = 4, .data_parallel = 2});
  const auto ratio = CompareLayouts(one, other, profile);
  ASSERT_TRUE(ratio.ok()) << ratio.status().message();
  EXPECT_NEAR(ratio->ratio, StepS(other, profile) / StepS(one, profile), 1e-12);
  EXPECT_NEAR(ratio->high / ratio->ratio, kBetweenDense, 1e-6);
  EXPECT_NEAR(ratio->ratio / ratio->low, kBetweenDense, 1e-6);
  // The other way round it is the inverse.
  const auto back = CompareLayouts(other, one, profile);
  ASSERT_TRUE(back.ok());
  EXPECT_NEAR(back->ratio, 1 / ratio->ratio, 1e-12);
  EXPECT_NEAR(back->low, 1 / ratio->high, 1e-9);
}

TEST(CompareLayoutsTest, ACostThatOneHasAloneWidensTheRatioByWhatItMoves) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer = {false, false, false, false};
  request.zero_stage = 0;
  const Profile profile = WithErrors(1.5, 1.2), low = WithErrors(1.5, 1);
  const StepQuestion one = QuestionOf(request, {.data_parallel = 8}),
                     other = QuestionOf(request, {.tensor_parallel = 2, .data_parallel = 4});
  const auto ratio = CompareLayouts(one, other, profile), sure = CompareLayouts(one, other, low);
  ASSERT_TRUE(ratio.ok() && sure.ok()) << ratio.status().message();
  EXPECT_GT(ratio->high / ratio->ratio, sure->high / sure->ratio * 1.0001);
  // Far less than of two intervals.
  const auto first = PriceLayout(one, profile), second = PriceLayout(other, profile);
  EXPECT_LT(ratio->high, second->high_s / first->low_s);
  EXPECT_GT(ratio->low, second->low_s / first->high_s);
}

// What is assumed of FP8 is not known the better because BF16 is measured.
TEST(CompareLayoutsTest, AnAssumedSpeedupIsAnErrorOfItsOwn) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer = {false, false, false, false};
  const StepQuestion bf16 = QuestionOf(request, {});
  StepQuestion fp8 = bf16;
  fp8.request.precision = Precision::kFp8;
  Profile profile = ProfileOfTheWholeStep();
  for (KernelModel& entry : profile.kernels) entry.key.bytes_per_element = 2;
  const auto ratio = CompareLayouts(bf16, fp8, profile);
  ASSERT_TRUE(ratio.ok()) << ratio.status().message();
  EXPECT_LT(ratio->ratio, 0.95);
  EXPECT_GT(ratio->high / ratio->ratio, 1.05);
  EXPECT_LT(ratio->low / ratio->ratio, 0.95);
}

TEST(CompareLayoutsTest, TheOtherLayoutIsAnsweredToo) {
  Profile profile = SmallProfile();
  profile.cluster.device_memory_bytes = 4e5;
  const StepQuestion one = QuestionOf(SmallRequest(), {.expert_parallel = 8, .data_parallel = 8});
  StepQuestion other = QuestionOf(SmallRequest(), {.data_parallel = 8});
  other.request.zero_stage = 0;
  const auto ratio = CompareLayouts(one, other, profile);
  ASSERT_TRUE(ratio.ok()) << ratio.status().message();
  EXPECT_GT(ratio->other.missing_bytes, 0);
  EXPECT_NEAR(ratio->other.layout.step_time_s / StepS(one, profile), ratio->ratio, 1e-12);
}

TEST(CompareLayoutsTest, MoeLayersThatBothRunAlikeAreOneCost) {
  LayoutRequest request = SmallRequest();
  Profile profile = SmallProfile();
  for (KernelModel& entry : profile.kernels) {
    entry.model.fit = FitQuality{.interval_low_ratio = 0.125, .interval_high_ratio = 8};
  }
  StepQuestion one = QuestionOf(request, {.expert_parallel = 4, .data_parallel = 8}), other = one;
  other.request.overlaps_gradients = false;  // A little longer.
  const auto alike = CompareLayouts(one, other, profile);
  other = one;
  other.layout.expert_parallel = 8;
  const auto apart = CompareLayouts(one, other, profile);
  ASSERT_TRUE(alike.ok() && apart.ok()) << alike.status().message() << apart.status().message();
  EXPECT_GT(alike->ratio, 1);
  EXPECT_GT(alike->high / alike->low, kBetweenWithExperts * kBetweenWithExperts);
  EXPECT_GT(apart->high / apart->low, 1.5 * (alike->high / alike->low));
}

TEST(CompareLayoutsTest, WhatIsWrongInEitherIsToldOfIt) {
  const StepQuestion right = QuestionOf(SmallRequest(), {.data_parallel = 8});
  StepQuestion wrong = right;
  wrong.layout.expert_parallel = 3;
  EXPECT_THAT(CompareLayouts(right, wrong, SmallProfile()).status().message(), HasSubstr("expertParallel: found 3"));
  EXPECT_THAT(CompareLayouts(wrong, right, SmallProfile()).status().message(), HasSubstr("expertParallel: found 3"));
}

}  // namespace
}  // namespace moeplan::planner
