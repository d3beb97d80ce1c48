// Steps under Lancet's passes: that they take what the same MoE layers take less what plans of the stages' graphs gain,
// which is computed here from graphs of whole models (TrainingGraphOf) and their plans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "models/text.h"
#include "planner/advice/scheduled.h"
#include "planner/lancet/model_graph.h"
#include "planner/lancet/stage_gains.h"
#include "planner/layout/lancet_rows.h"
#include "planner/layout/price_layout.h"
#include "planner/layout/rank_layouts.h"
#include "planner/rules/lancet.h"
#include "planner/rules/step_alternatives.h"
#include "planner/wording.h"
#include "tests/planner/small_layouts.h"
#include "tests/planner/small_steps.h"

namespace moeplan::planner {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// A layout of 8 GPUs on 2 nodes.
struct Case {
  std::string name;
  Layout layout;
  int micro_batch = 1;
  LayoutRequest request = SmallRequest();
};

LayoutRequest With(const std::function<void(LayoutRequest&)>& change) {
  LayoutRequest request = SmallRequest();
  change(request);
  return request;
}

std::vector<Case> Cases() {
  return {
      {"one micro-batch", {.expert_parallel = 4}, 2},
      {"accumulates", {.expert_parallel = 4}, 1, With([](auto& r) { r.global_batch = 64, r.zero_stage = 1; })},
      {"sums after", {.expert_parallel = 4}, 1, With([](auto& r) { r.zero_stage = 1, r.overlaps_gradients = false; })},
      {"ZeRO-3", {.expert_parallel = 4}, 2, With([](auto& r) { r.zero_stage = 3; })},
      {"TP 2", {.tensor_parallel = 2, .expert_parallel = 4}, 2, With([](auto& r) { r.zero_stage = 1; })},
      {"whole rows", {.tensor_parallel = 2, .expert_parallel = 4}, 2, With([](auto& r) {
         r.sequence_parallel = false;
       })},
      {"ESP 2", {.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2}, 2},
      {"ESP 2 alone", {.expert_parallel = 2, .expert_sharding_parallel = 2}, 2},
      {"CP 2", {.expert_parallel = 4, .context_parallel = 2}, 2},
      {"PP 2", {.expert_parallel = 4, .pipeline_parallel = 2}, 2},
      {"PP 2, TP 2", {.tensor_parallel = 2, .expert_parallel = 2, .pipeline_parallel = 2}, 2, With([](auto& r) {
         r.model.moe_layer.assign(4, true);
       })},
      {"PP 2, virtual", {.expert_parallel = 4, .pipeline_parallel = 2}, 2, With([](auto& r) { r.virtual_stages = 2; })},
      {"uneven stages", {.expert_parallel = 4, .pipeline_parallel = 2}, 2, With([](auto& r) {
         r.stages = {1, 3};
       })},
      {"layers again", {.expert_parallel = 4, .context_parallel = 2}, 2, With([](auto& r) {
         r.recompute = Recompute::kFull;
       })},
      {"scores again", {.expert_parallel = 4, .context_parallel = 2}, 2, With([](auto& r) {
         r.recompute = Recompute::kSelective;
       })},
      {"norms and MoE layers again", {.tensor_parallel = 2, .expert_parallel = 4}, 2, With([](auto& r) {
         r.recompute = Recompute::kSelective;
         r.recompute_modules = {RecomputeModule::kLayerNorm, RecomputeModule::kMoe};
       })},
      {"stored scores", {.expert_parallel = 4}, 2, With([](auto& r) { r.attention = AttentionKernel::kStored; })},
      {"a further token", {.expert_parallel = 4, .context_parallel = 2}, 2, With([](auto& r) { r.next_tokens = 1; })},
  };
}

StepQuestion QuestionOf(const Case& one) { return planner::QuestionOf(one.request, one.layout, one.micro_batch); }

StepQuestion UnderLancet(StepQuestion question) {
  question.lancet = true;
  return question;
}

StepQuestion InOnePiece(StepQuestion question) {
  const Layout& layout = question.layout;
  const bool shared = layout.tensor_parallel > 1 || layout.expert_sharding_parallel > 1;
  question.schedule = shared ? Family::kParmS1 : Family::kBaseline;
  question.chunks = question.partition_degree = 1;
  return question;
}

StepAnswer Priced(const StepQuestion& question, const Profile& profile = ProportionalProfile()) {
  const auto answer = PriceLayout(question, profile);
  EXPECT_TRUE(answer.ok()) << answer.status().message();
  return answer.ok() ? *answer : StepAnswer();
}

// ---- What a plan of one micro-batch gains, by hand.

bool StartsWithAny(const std::string& id, std::initializer_list<const char*> beginnings) {
  return std::ranges::any_of(beginnings, [&](const char* beginning) { return id.starts_with(beginning); });
}

// Leaves out what a step has once, and makes free what `step` counts elsewhere: weights of ZeRO-3 and contexts behind
// scores.
TrainingGraph OfOneMicroBatch(TrainingGraph graph) {
  std::erase_if(graph.instructions, [](const Instruction& one) {
    return StartsWithAny(one.id, {"gradients.", "expert_gradients.", "optimizer"}) || one.id == "weights" ||
           one.id == "expert_weights";
  });
  const auto find = [&](const std::string& id) { return std::ranges::find(graph.instructions, id, &Instruction::id); };
  const auto scale = [](Instruction& one, double factor) {
    one.time_s = factor * *one.time_s;
    for (double& part_s : one.part_times_s) part_s *= factor;
  };
  for (Instruction& one : graph.instructions) {
    if (one.id.find("weights") != std::string::npos && CollectiveOf(one.op)) scale(one, 0);
  }
  for (const char* const layer : {"layer0.", "layer1.", "layer2.", "layer3.", "next1."}) {
    const auto id = [&](const char* what) { return StrCat(layer, what); };
    if (find(id("contexts")) == graph.instructions.end()) continue;
    if (const auto again = find(id("contexts.recomputed")); again != graph.instructions.end()) {
      scale(*again, std::max(0.0, 1 - *find(id("attention.recomputed"))->time_s / *again->time_s));
    }
    const double there_s = *find(id("contexts"))->time_s;
    scale(*find(id("contexts")), std::max(0.0, 1 - *find(id("attention"))->time_s / there_s));
    const double back_s = *find(id("contexts.again"))->time_s + *find(id("contexts.dx"))->time_s;
    const double left = std::max(0.0, 1 - *find(id("attention.dx"))->time_s / back_s);
    scale(*find(id("contexts.again")), left), scale(*find(id("contexts.dx")), left);
  }
  return graph;
}

// The gain of one of stages of so many layers, each on as many ranks as the case's.
double GainS(const Case& one, const std::vector<int>& stages, int stage, const Profile& profile) {
  const int pipeline = stages.empty() ? one.layout.pipeline_parallel : static_cast<int>(stages.size());
  const ModelGraphOptions options = {.batch = one.micro_batch,
                                     .sequence_length = one.request.sequence_length,
                                     .expert_parallel = one.layout.expert_parallel,
                                     .ranks_per_node = std::min(4, one.layout.expert_parallel),
                                     .expert_sharding_parallel = one.layout.expert_sharding_parallel,
                                     .tensor_parallel = one.layout.tensor_parallel,
                                     .context_parallel = one.layout.context_parallel,
                                     .pipeline_parallel = pipeline,
                                     .stages = stages,
                                     .stage = stage,
                                     .recompute = one.request.recompute,
                                     .recompute_modules = one.request.recompute_modules,
                                     .attention = one.request.attention,
                                     .next_tokens = one.request.next_tokens,
                                     .sequence_parallel = one.request.sequence_parallel,
                                     .gpus = one.request.gpus / one.layout.pipeline_parallel * pipeline,
                                     .gpus_per_node = 4,
                                     .dropless = true,
                                     .zero_stage = one.request.zero_stage};
  PriceNotes notes;
  const auto whole = TrainingGraphOf(one.request.model, options, profile, notes);
  EXPECT_TRUE(whole.ok()) << whole.status().message();
  TrainingGraph graph = OfOneMicroBatch(*whole);
  for (Instruction& send : graph.instructions) {
    if (send.op != InstructionOp::kSend || one.request.virtual_stages == 1) continue;
    send.time_s = 0, send.part_times_s.assign(send.part_times_s.size(), 0);
  }
  const auto plan = PlanGraph(graph, &profile);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan->lancet.unscheduled_time_s - plan->lancet.time_s;
}

// ---- The step.

TEST(LancetStepTest, IsTheStepOfTheSameLayersLessWhatPlansOfItsStagesGain) {
  const Profile profile = ProportionalProfile();
  bool more_memory = false;
  for (const Case& one : Cases()) {
    SCOPED_TRACE(one.name);
    const StepAnswer lancet = Priced(UnderLancet(QuestionOf(one)));
    const StepAnswer without = Priced(InOnePiece(QuestionOf(one)));
    ASSERT_TRUE(lancet.lancet);
    EXPECT_FALSE(without.lancet);
    const double without_s = without.layout.step_time_s, step_s = lancet.layout.step_time_s;
    EXPECT_NEAR(lancet.lancet->without_step_s, without_s, 1e-12 * without_s);
    EXPECT_EQ(lancet.layout.moe, without.layout.moe);
    EXPECT_TRUE(lancet.layout.lancet);
    // Tensors that wait longer take memory.
    RankMemory memory = lancet.layout.memory;
    EXPECT_GE(memory.running_bytes, without.layout.memory.running_bytes);
    memory.running_bytes = without.layout.memory.running_bytes;
    EXPECT_EQ(memory, without.layout.memory);
    more_memory = more_memory || lancet.layout.memory.total_bytes() > without.layout.memory.total_bytes();
    // Both passes gain as much in all micro-batches of the stage that has the most to do: the last.
    const int micro_batches = one.request.global_batch / lancet.layout.layout.data_parallel / one.micro_batch;
    double gain_s = GainS(one, one.request.stages, one.layout.pipeline_parallel - 1, profile);
    if (one.name == "PP 2, virtual") {
      const std::vector<int> stages = {1, 1, 1, 1};
      gain_s = GainS(one, stages, 1, profile) + GainS(one, stages, 3, profile);
    }
    const double hidden_s = lancet.lancet->ranges_s + lancet.lancet->weight_gradients_s;
    EXPECT_GT(gain_s, 0);
    EXPECT_NEAR(hidden_s, micro_batches * gain_s, 1e-6 * hidden_s);
    EXPECT_GE(lancet.lancet->ranges_s, 0);
    EXPECT_GE(lancet.lancet->weight_gradients_s, 0);
    // Sums of gradients that hid behind what is gone are exposed instead.
    EXPECT_LE(step_s, without_s);
    if (one.request.zero_stage < 3) {
      EXPECT_LT(step_s, without_s);
    }
    // Other stages are shorter once, too.
    if (one.layout.pipeline_parallel == 1) {
      EXPECT_GE(step_s, without_s - hidden_s * (1 + 1e-9));
    }
    if (one.name == "sums after") {
      EXPECT_NEAR(step_s, without_s - hidden_s, 1e-9 * step_s);
    }
  }
  EXPECT_TRUE(more_memory);
}

TEST(LancetStepTest, PartsSumToTheStepAndOnlyExchangesAndWhatHidesBehindThemDiffer) {
  for (const Case& one : Cases()) {
    SCOPED_TRACE(one.name);
    const StepAnswer lancet = Priced(UnderLancet(QuestionOf(one))), without = Priced(InOnePiece(QuestionOf(one)));
    const double step_s = lancet.layout.step_time_s;
    EXPECT_NEAR(SumOf(lancet, &StepPartTime::exposed_s), step_s, 1e-9 * step_s);
    double hidden_s = 0;
    for (const StepPartTime& part : without.parts) {
      const StepPartTime* const planned = Find(lancet, part.part);
      ASSERT_NE(planned, nullptr) << part.part;
      EXPECT_GE(planned->exposed_s, -1e-12 * step_s) << part.part;
      if (part.part == "moeLayers" || part.part == "tensorExchange" || part.part == "contextExchange" ||
          part.part == "pipelineExchange") {
        EXPECT_LE(planned->exposed_s, part.exposed_s) << part.part;
        EXPECT_EQ(planned->forward_s, part.forward_s) << part.part;
        EXPECT_EQ(planned->backward_s, part.backward_s) << part.part;
        hidden_s += part.exposed_s - planned->exposed_s;
      } else if (part.part != "bubble" && part.part != "gradients" && part.part != "weights") {
        EXPECT_NEAR(planned->exposed_s, part.exposed_s, 1e-12 * step_s) << part.part;
      }
    }
    EXPECT_NEAR(hidden_s, lancet.lancet->ranges_s + lancet.lancet->weight_gradients_s, 1e-9 * step_s);
  }
}

// Two of four stages have as much, in another order: where the layer with experts comes first, the other's weight
// gradients are there before its all-to-alls go back.
TEST(LancetStepTest, StagesThatDifferInTheOrderOfTheirLayersAreToldApart) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer = {false, true, true, false, false, true, true, false};
  const Profile profile = ProportionalProfile();
  const auto point = PointOf(request, profile.cluster, {.expert_parallel = 2, .pipeline_parallel = 4}, 1);
  ASSERT_TRUE(point.ok()) << point.status().message();
  PriceNotes notes;
  const auto gains = GainsOfStages(request, *point, profile, notes);
  ASSERT_TRUE(gains.ok()) << gains.status().message();
  ASSERT_EQ(gains->size(), 4u);
  EXPECT_GT(gains->at(1).weight_gradients_s, 1.01 * gains->at(2).weight_gradients_s);
}

// No period: the whole run is planned.
TEST(LancetStepTest, LayersThatDoNotRepeatArePlannedWhole) {
  LayoutRequest request = SmallRequest();
  request.model.moe_layer.assign(16, true);
  for (const int dense : {1, 4, 5, 11, 13, 14}) request.model.moe_layer[dense] = false;
  const Profile profile = ProportionalProfile();
  const auto point = PointOf(request, profile.cluster, {.expert_parallel = 4}, 2);
  ASSERT_TRUE(point.ok());
  PriceNotes notes;
  const auto few = GainsOfStages(request, *point, profile, notes);
  const auto whole = GainsOfStages(request, *point, profile, notes, {}, /*whole_layers=*/100);
  ASSERT_TRUE(few.ok() && whole.ok());
  EXPECT_EQ(*few, *whole);
}

TEST(LancetStepTest, APlanThatGainsNothingLeavesTheStepAsItIs) {
  Profile profile = ProportionalProfile();
  for (CollectiveModel& entry : profile.collectives) entry.model = MakeCostModel(AlphaBeta{1e-30, 0});
  const StepQuestion question = planner::QuestionOf(SmallRequest(), {.expert_parallel = 4});
  const StepAnswer lancet = Priced(UnderLancet(question), profile), without = Priced(InOnePiece(question), profile);
  EXPECT_NEAR(lancet.layout.step_time_s, without.layout.step_time_s, 1e-12);
}

TEST(LancetStepTest, ASlowHostLeavesNothingToHide) {
  Profile profile = ProportionalProfile();
  profile.kernels.push_back(Line(Kernel::kHostLaunch, 0, 1));  // A second a launch.
  StepQuestion question = planner::QuestionOf(SmallRequest(), {.expert_parallel = 4}, 2);
  question.request.overlaps_gradients = false;
  EXPECT_GT(Priced(UnderLancet(question)).lancet->ranges_s, 0);
  const StepAnswer lancet = Priced(UnderLancet(question), profile), without = Priced(InOnePiece(question), profile);
  // Parts of ranges are launched one by one, so the step would be longer.
  EXPECT_EQ(lancet.layout.step_time_s, without.layout.step_time_s);
  EXPECT_EQ(lancet.lancet->ranges_s, 0);
}

TEST(LancetStepTest, IsAnsweredWithAnIntervalAndComparedWithOthers) {
  const StepQuestion question = planner::QuestionOf(SmallRequest(), {.expert_parallel = 4});
  const StepAnswer lancet = Priced(UnderLancet(question));
  EXPECT_LT(lancet.low_s, lancet.layout.step_time_s);
  EXPECT_GT(lancet.high_s, lancet.layout.step_time_s);
  const auto ratio = CompareLayouts(UnderLancet(question), InOnePiece(question), ProportionalProfile());
  ASSERT_TRUE(ratio.ok()) << ratio.status().message();
  EXPECT_NEAR(ratio->ratio, lancet.lancet->without_step_s / lancet.layout.step_time_s, 1e-9);
  EXPECT_GT(ratio->ratio, 1);
  const auto same = CompareLayouts(UnderLancet(question), UnderLancet(question), ProportionalProfile());
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(same->low, 1);
}

TEST(LancetStepTest, LayersThatArePlannedOneByOneAreNamedWhereTheyAreFaster) {
  std::vector<Case> cases = Cases();
  // A micro-batch of one sample has no range in parts, and layers send enough to be cut themselves.
  cases.push_back({"one long sample", {.expert_parallel = 4}, 1, With([](auto& r) {
                     r.sequence_length = 16384, r.model.top_k = 4, r.model.expert_hidden_dim = 512;
                   })});
  int faster = 0, slower = 0;
  for (const Case& one : cases) {
    const StepQuestion question = UnderLancet(QuestionOf(one));
    const StepAnswer lancet = Priced(question), layers = Priced(QuestionOf(one));
    const bool is_faster = layers.layout.step_time_s * 1.001 <= lancet.layout.step_time_s;
    const Knobs& knobs = layers.layout.moe;
    const int pieces = std::max(knobs.chunks, knobs.partition_degree);
    const std::string line = "layout.schedule: the step takes " + Duration(lancet.layout.step_time_s) +
                             " under LANCET and " + Duration(layers.layout.step_time_s) + " with MoE layers as " +
                             std::string(Name(knobs.family)) +
                             (pieces > 1 ? " in " + std::to_string(pieces) + " pieces" : "") +
                             ", which is what a layout without schedule has";
    const Profile profile = ProportionalProfile();
    EXPECT_EQ(FasterLayers(question, lancet, profile), is_faster ? line : "") << one.name;
    EXPECT_EQ(FasterLayers(QuestionOf(one), layers, profile), "") << one.name;
    ++(is_faster ? faster : slower);
  }
  EXPECT_GT(faster, 0);
  EXPECT_GT(slower, 0);
}

TEST(LancetStepTest, WhatNoGraphHasIsRefusedByName) {
  const auto refusal = [](auto change) {
    StepQuestion question = UnderLancet(planner::QuestionOf(SmallRequest(), {.expert_parallel = 4}));
    change(question);
    const auto answer = PriceLayout(question, ProportionalProfile());
    EXPECT_TRUE(answer.ok() || answer.status().code() == StatusCode::kInvalidInput);
    return answer.ok() ? std::string() : answer.status().message();
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_EQ(refusal([](auto& q) { q.request.overlaps_experts = true; }),
            "layout.overlapExpertParallel: found true, expected false: a graph is one micro-batch; "
            "layout.schedule LANCET plans the graph of a stage");
  EXPECT_THAT(refusal([](auto& q) { q.request.model.moe_layer.assign(4, false); }),
              HasSubstr("layout.schedule: found LANCET, expected none: the model has no layer of experts"));
}

// Passes hide no more of an exchange than a step has of it, and something of each.
TEST(LancetStepTest, StepsOfOtherExchangesArePlannedToo) {
  const auto expect_hidden = [](auto change, const std::string& name) {
    StepQuestion question = planner::QuestionOf(SmallRequest(), {.tensor_parallel = 2, .expert_parallel = 4}, 4);
    question.request.sequence_length = 512;
    change(question);
    const StepAnswer lancet = Priced(UnderLancet(question)), whole = Priced(InOnePiece(question));
    EXPECT_NEAR(lancet.lancet->without_step_s, whole.layout.step_time_s, 1e-9 * whole.layout.step_time_s);
    EXPECT_LT(lancet.layout.step_time_s, whole.layout.step_time_s);
    const StepPartTime *const planned = Find(lancet, name), *const before = Find(whole, name);
    ASSERT_TRUE(planned != nullptr && before != nullptr) << name;
    EXPECT_LT(planned->exposed_s, before->exposed_s) << name;
    EXPECT_GE(planned->exposed_s, before->exposed_s - before->forward_s - before->backward_s) << name;
  };
  expect_hidden([](auto& q) { q.request.dispatcher = Dispatcher::kDeepEp; }, "moeLayers");
  expect_hidden([](auto& q) { q.request.dispatcher = Dispatcher::kAllGather; }, "moeLayers");
  expect_hidden([](auto& q) { q.request.overlaps_tensor = true; }, "tensorExchange");
  expect_hidden([](auto& q) { q.request.precision = Precision::kFp8; }, "tensorExchange");
  expect_hidden(
      [](auto& q) {
        q.layout.context_parallel = 2;
        q.request.context_exchange = ContextExchange::kAllToAll;
      },
      "contextExchange");
}

TEST(LancetStepTest, CancelledPlansAreNoAnswer) {
  std::stop_source source;
  source.request_stop();
  const StepQuestion question = UnderLancet(planner::QuestionOf(SmallRequest(), {.expert_parallel = 4}));
  const auto answer =
      PriceLayout(question, ProportionalProfile(), {.cancelled = source.get_token(), .out_of_time = {}});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.status().code(), StatusCode::kCancelled);
}

// ---- Rows of a ranking.

LayoutAnswer Ranked(const LayoutRequest& request) {
  const auto ranked = RankLayouts(request, ProportionalProfile());
  EXPECT_TRUE(ranked.ok()) << ranked.status().message();
  return ranked.ok() ? *ranked : LayoutAnswer();
}

TEST(LancetRowsTest, ARowIsThatOfTheFasterAndTakesAsLongAlone) {
  LayoutRequest request = SmallRequest();
  request.top = 4;
  const LayoutAnswer before = Ranked(request);
  LayoutAnswer after = before;
  ASSERT_TRUE(TryLancet(request, ProportionalProfile(), /*threads=*/2, after).ok());
  ASSERT_EQ(after.layouts.size(), before.layouts.size());
  int lancet = 0;
  for (const RankedLayout& row : after.layouts) {
    StepQuestion question = planner::QuestionOf(request, row.layout, row.micro_batch);
    question.horizontal_contexts = row.horizontal_contexts;
    const auto same = [&](const RankedLayout& other) {
      return other.layout == row.layout && other.horizontal_contexts == row.horizontal_contexts;
    };
    const auto was = std::ranges::find_if(before.layouts, same);
    ASSERT_NE(was, before.layouts.end());
    const double lancet_s = Priced(UnderLancet(question)).layout.step_time_s;
    EXPECT_EQ(row.step_time_s, std::min(lancet_s, was->step_time_s));
    EXPECT_EQ(row.lancet, lancet_s < was->step_time_s);
    lancet += row.lancet ? 1 : 0;
  }
  EXPECT_GT(lancet, 0);
  EXPECT_TRUE(std::ranges::is_sorted(after.layouts, {}, &RankedLayout::step_time_s));
  EXPECT_THAT(after.warnings,
              Contains("Lancet's passes were tried for the 4 layouts listed here alone; --top lists more"));
  LayoutAnswer reversed = before;
  std::ranges::reverse(reversed.layouts);
  ASSERT_TRUE(TryLancet(request, ProportionalProfile(), /*threads=*/1, reversed).ok());
  EXPECT_TRUE(std::ranges::is_sorted(reversed.layouts, {}, &RankedLayout::step_time_s));
  LayoutAnswer alone = before;
  ASSERT_TRUE(TryLancet(request, ProportionalProfile(), /*threads=*/1, alone).ok());
  EXPECT_EQ(alone, after);
}

TEST(LancetRowsTest, WhatNoGraphHasIsNotTriedAndNamed) {
  LayoutRequest request = SmallRequest();
  request.overlaps_experts = true;
  const LayoutAnswer before = Ranked(request);
  LayoutAnswer after = before;
  ASSERT_TRUE(TryLancet(request, ProportionalProfile(), /*threads=*/1, after).ok());
  EXPECT_EQ(after.layouts, before.layouts);
  EXPECT_THAT(after.warnings,
              Contains(AllOf(HasSubstr("Lancet's passes were not tried: layout.overlapExpertParallel: found true"))));
}

TEST(LancetRowsTest, CancelledItSaysSo) {
  LayoutAnswer answer = Ranked(SmallRequest());
  std::stop_source source;
  source.request_stop();
  const Status status = TryLancet(SmallRequest(), ProportionalProfile(), 1, answer, source.get_token());
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
}

// ---- What each paper has.

TEST(StepAlternativesTest, AreStepsOfTheirSchedulesAndTheFastestOfThemIsJoint) {
  for (const Case& one : Cases()) {
    if (one.name != "accumulates" && one.name != "TP 2" && one.name != "PP 2") continue;
    SCOPED_TRACE(one.name);
    const StepQuestion question = QuestionOf(one);
    const auto choices = StepAlternatives(question, ProportionalProfile());
    ASSERT_TRUE(choices.ok()) << choices.status().message();
    std::vector<std::string> names;
    double least_s = std::numeric_limits<double>::infinity();
    for (const StepAlternative& choice : *choices) {
      names.push_back(choice.name);
      const auto by_row = [&] {
        StepQuestion row = question;
        row.schedule = choice.family;
        row.chunks = choice.family == Family::kPipeline ? 1 : choice.pieces;
        row.partition_degree = choice.family == Family::kPipeline ? choice.pieces : 1;
        return Priced(row).layout.step_time_s;
      };
      if (choice.name == "lancet") {
        EXPECT_EQ(choice.step_s, Priced(UnderLancet(question)).layout.step_time_s);
      }
      if (choice.name == "one piece") {
        EXPECT_NEAR(choice.step_s, Priced(InOnePiece(question)).layout.step_time_s, 1e-15);
      }
      if (choice.name == "layers") {
        EXPECT_EQ(choice.step_s, Priced(question).layout.step_time_s);
      }
      if (choice.name == "parm" || choice.name == "schemoe") {
        EXPECT_NEAR(choice.step_s, by_row(), 1e-15);
      }
      if (choice.name == "schemoe") {
        EXPECT_EQ(choice.family, Family::kPipeline);
      }
      if (choice.name == "parm") {
        EXPECT_TRUE(choice.family == Family::kParmS1 || choice.family == Family::kParmS2);
      }
      if (choice.name != "joint") least_s = std::min(least_s, choice.step_s);
    }
    EXPECT_EQ(choices->back().name, "joint");
    EXPECT_EQ(choices->back().step_s, least_s);
    EXPECT_THAT(names, AllOf(Contains("one piece"), Contains("lancet"), Contains("layers")));
  }
}

// ---- What advice says of it.

TEST(ScheduledTextTest, SaysWhatIsSavedWhereItIsMoreThanAPercent) {
  const StepQuestion question = planner::QuestionOf(SmallRequest(), {.expert_parallel = 4});
  const double lancet_s = Priced(UnderLancet(question)).layout.step_time_s;
  const auto text = [&](const StepQuestion& of, double of_step_s) {
    const auto said = ScheduledText(of, of_step_s, ProportionalProfile());
    EXPECT_TRUE(said.ok()) << said.status().message();
    return said.ok() ? *said : std::string("an error");
  };
  EXPECT_THAT(text(InOnePiece(question), 1.25 * lancet_s),
              HasSubstr("weight gradients and ranges under moeplan.torch.scheduled would save 20.0 % more ("));
  EXPECT_NE(text(question, lancet_s / (1 - 0.0101)), "");
  EXPECT_EQ(text(question, lancet_s / (1 - 0.0099)), "");
  StepQuestion again = question;
  again.request.recompute = Recompute::kFull;
  EXPECT_EQ(text(again, 2 * lancet_s), "");
  // Graphs have these, and moeplan.torch runs none of them.
  StepQuestion dispatched = question, low = question, in_pieces = question;
  dispatched.request.dispatcher = Dispatcher::kDeepEp;
  low.request.precision = Precision::kFp8;
  in_pieces.request.overlaps_tensor = true;
  for (const StepQuestion& one : {dispatched, low, in_pieces}) EXPECT_EQ(text(one, 2 * lancet_s), "");
}

}  // namespace
}  // namespace moeplan::planner
