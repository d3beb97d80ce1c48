// Training graphs take as long, kind by kind, as `step` says of the same layout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "models/text.h"
#include "planner/lancet/model_graph.h"
#include "planner/layout/layout_space.h"
#include "planner/layout/price_layout.h"
#include "planner/rules/lancet.h"
#include "tests/planner/find_instruction.h"
#include "tests/planner/shared_layouts.h"
#include "tests/planner/small_layouts.h"
#include "tests/planner/small_steps.h"

namespace moeplan::planner {
namespace {

// The same layout's step, of one micro-batch, and MoE layers as the graph has them.
StepQuestion QuestionFor(const ModelGraphOptions& options) {
  LayoutRequest request = SmallRequest();
  request.global_batch =
      options.batch * 8 / (options.tensor_parallel * options.context_parallel * options.pipeline_parallel);
  request.stages = options.stages;
  request.zero_stage = options.zero_stage;
  request.sequence_parallel = options.sequence_parallel;
  request.recompute = options.recompute;
  request.recompute_modules = options.recompute_modules;
  request.recompute_layers = options.recompute_layers;
  request.recompute_chunk = options.recompute_chunk;
  request.attention = options.attention;
  request.next_tokens = options.next_tokens;
  request.context_exchange = options.context_exchange;
  request.dispatcher = options.dispatcher;
  request.precision = options.precision;
  request.overlaps_tensor = options.overlaps_tensor;
  StepQuestion question = QuestionOf(request,
                                     {.tensor_parallel = options.tensor_parallel,
                                      .expert_parallel = options.expert_parallel,
                                      .expert_sharding_parallel = options.expert_sharding_parallel,
                                      .context_parallel = options.context_parallel,
                                      .pipeline_parallel = options.pipeline_parallel},
                                     options.batch);
  question.schedule = options.tensor_parallel > 1 ? Family::kParmS1 : Family::kBaseline;
  question.chunks = question.partition_degree = 1;
  return question;
}
StepAnswer StepOf(const ModelGraphOptions& options) {
  const auto answer = PriceLayout(QuestionFor(options), ProportionalProfile());
  EXPECT_TRUE(answer.ok()) << answer.status().message();
  return answer.ok() ? *answer : StepAnswer();
}

// Sums of gradients, and gathers of weights behind them, take so long, as `step` counts them.
double GradientsS(const TrainingGraph& graph, const ModelGraphOptions& options) {
  const bool cut = options.zero_stage == 3;
  const double all_s = SumS(graph, Pass::kBackward, [cut](const Instruction& one) {
    const bool sums = one.id.starts_with("gradients.") || one.id.starts_with("expert_gradients.");
    return sums || (!cut && (one.id == "weights" || one.id == "expert_weights"));
  });
  if (options.tensor_parallel == 1 || all_s == 0) return all_s;
  // Routers are whole on each tensor-parallel rank, where `step` counts a part of them.
  const auto routers = static_cast<double>(
      Count(graph, InstructionOp::kGate, [](const Instruction& one) { return one.phase == Pass::kForward; }));
  const Instruction &sum = Find(graph, "gradients.1"), &gather = Find(graph, "weights");
  const double per_parameter_s = 4 * *sum.time_s / *sum.bytes + 2 * *gather.time_s / *gather.bytes;
  return all_s - routers * kRouter * (1 - 1.0 / options.tensor_parallel) * per_parameter_s;
}

void ExpectSumsOfStep(const ModelGraphOptions& options) {
  const TrainingGraph graph = GraphOf(options);
  const StepAnswer step = StepOf(options);
  const auto expect = [&](const char* name, const Kind& counts, double more_s = 0) {
    const StepPartTime* const found = planner::Find(step, name);
    ASSERT_TRUE(found != nullptr || options.pipeline_parallel > 1) << name;
    const StepPartTime part = found != nullptr ? *found : StepPartTime();  // A stage may have none of it.
    EXPECT_NEAR(SumS(graph, Pass::kForward, counts), part.forward_s, 1e-9 * part.forward_s) << name;
    EXPECT_NEAR(SumS(graph, Pass::kBackward, counts) - more_s, part.backward_s, 1e-9 * part.backward_s) << name;
  };
  const auto names = [](const Instruction& one, std::initializer_list<const char*> parts) {
    return std::ranges::any_of(parts, [&](const char* part) { return one.id.find(part) != std::string::npos; });
  };
  const auto computes = [](const Instruction& one) { return !CollectiveOf(one.op); };
  const auto of_attention = [&](const Instruction& one) {
    return computes(one) && names(one, {".qkv", ".out", ".attention"});
  };
  const auto elementwise = [&](const Instruction& one) {
    return computes(one) && names(one, {"norm", ".rotary", ".add", ".activation", "embedding", ".pair"});
  };
  if (options.attention == AttentionKernel::kFlash) {
    expect("attention", of_attention);
    expect("elementwise", elementwise);
  } else {  // The softmax over stored scores is elementwise to `step`, and one instruction with the scores in a graph.
    const StepPartTime &first = *planner::Find(step, "attention"), &second = *planner::Find(step, "elementwise");
    const auto both = [&](const Instruction& one) { return of_attention(one) || elementwise(one); };
    EXPECT_NEAR(SumS(graph, Pass::kForward, both), first.forward_s + second.forward_s, 1e-9 * first.forward_s);
    EXPECT_NEAR(SumS(graph, Pass::kBackward, both), first.backward_s + second.backward_s, 1e-9 * first.backward_s);
  }
  expect("denseNetworks", [&](const Instruction& one) { return computes(one) && names(one, {".up", ".down"}); });
  expect("logits", [&](const Instruction& one) { return computes(one) && names(one, {"head", ".join"}); });
  // The way back of a MoE layer is no sum: weight gradients run beside exchanges there. What comes before it is one.
  if (options.tensor_parallel == 1 && options.expert_sharding_parallel == 1) {
    const auto of_experts = [&](const Instruction& one) {
      return names(one, {".gate", ".gather", ".dispatch", ".all_to_all", ".experts", ".combine", ".scatter"});
    };
    const auto again = [&](const Instruction& one) { return of_experts(one) && names(one, {".recomputed"}); };
    ModelGraphOptions once = options;
    once.recompute = Recompute::kNone, once.recompute_modules = {}, once.recompute_layers = 0, once.recompute_chunk = 1;
    const StepAnswer kept = StepOf(once);
    const StepPartTime &part = *planner::Find(step, "moeLayers"), &of_kept = *planner::Find(kept, "moeLayers");
    EXPECT_NEAR(SumS(graph, Pass::kForward, of_experts), part.forward_s, 1e-9 * part.forward_s);
    EXPECT_NEAR(SumS(graph, Pass::kBackward, again), part.backward_s - of_kept.backward_s, 1e-9 * part.backward_s);
  }
  if (options.pipeline_parallel > 1) expect("pipelineExchange", IsSend);
  expect("loss", [&](const Instruction& one) { return computes(one) && names(one, {"loss"}); });
  if (options.tensor_parallel > 1) {
    // A MoE layer's own are in its schedule.
    expect("tensorExchange", [&](const Instruction& one) {
      return OverTensor(one) && !names(one, {".gate", ".whole", ".slice"});
    });
  }
  if (options.context_parallel > 1) expect("contextExchange", OfContexts);
  if (options.zero_stage == 3) {
    expect("weights", [&](const Instruction& one) { return OfReplicas(one) && one.op == InstructionOp::kAllGather; });
  }
  // `step` has the sums of the stage that ends last with them.
  double nearest_s = std::numeric_limits<double>::infinity();
  const StepPartTime* const sums = planner::Find(step, "gradients");
  const double gradients_s = sums != nullptr ? sums->backward_s : 0;  // One rank may have all of a stage.
  for (int stage = 0; stage < options.pipeline_parallel; ++stage) {
    ModelGraphOptions of_stage = options;
    of_stage.stage = stage;
    const double miss_s = GradientsS(GraphOf(of_stage), of_stage) - gradients_s;
    if (std::abs(miss_s) < std::abs(nearest_s)) nearest_s = miss_s;
  }
  EXPECT_NEAR(nearest_s, 0, 1e-9 * gradients_s);
}

TEST(SumsOfStepTest, SumsAreThoseOfTheStep) {
  ExpectSumsOfStep(kShared);
  ExpectSumsOfStep(WithWholeRows());
  ExpectSumsOfStep(WithSharedExperts());
  ExpectSumsOfStep(WithCutWeights());
}

using ChangedOptions = std::pair<std::string, std::function<void(ModelGraphOptions&)>>;

std::vector<ChangedOptions> RecomputedCases() {
  const auto select = [](RecomputeModules modules) {
    return [modules](ModelGraphOptions& o) { o.recompute = Recompute::kSelective, o.recompute_modules = modules; };
  };
  using enum RecomputeModule;
  return {
      {"layers", [](ModelGraphOptions& o) { o.recompute = Recompute::kFull; }},
      {"three of each", [](ModelGraphOptions& o) { o.recompute = Recompute::kFull, o.recompute_layers = 3; }},
      {"two at a time", [](ModelGraphOptions& o) { o.recompute = Recompute::kFull, o.recompute_chunk = 2; }},
      {"four at a time", [](ModelGraphOptions& o) { o.recompute = Recompute::kFull, o.recompute_chunk = 4; }},
      {"scores", select({})},
      {"norms", select({kLayerNorm})},
      {"networks", select({kMlp})},
      {"MoE layers", select({kMoe})},
      {"activation", select({kMoeAct})},
      {"many", select({kCoreAttention, kLayerNorm, kMlp, kMoeAct})},
      {"stored scores", [](ModelGraphOptions& o) { o.attention = AttentionKernel::kStored; }},
      {"stored scores again",
       [](ModelGraphOptions& o) { o.attention = AttentionKernel::kStored, o.recompute = Recompute::kSelective; }},
      {"further tokens", [](ModelGraphOptions& o) { o.next_tokens = 2; }},
      {"all of it",
       [](ModelGraphOptions& o) { o.next_tokens = 2, o.recompute = Recompute::kFull, o.recompute_layers = 1; }},
  };
}

TEST(SumsOfStepTest, SumsOfWhatIsComputedAgainAndFurtherPredictedAreThoseOfTheStep) {
  for (const auto& [name, change] : RecomputedCases()) {
    for (ModelGraphOptions options : {kShared, WithWholeRows(), WithCutWeights(), InStages(2)}) {
      change(options);
      SCOPED_TRACE(StrCat(name, ", TP ", options.tensor_parallel, ", PP ", options.pipeline_parallel, ", sequence ",
                          options.sequence_parallel, ", ZeRO ", options.zero_stage));
      ExpectSumsOfStep(options);
      const auto answer = PlanGraph(GraphOf(options), nullptr);
      ASSERT_TRUE(answer.ok()) << answer.status().message();
      EXPECT_LE(answer->lancet.time_s, answer->lancet.unscheduled_time_s);
    }
  }
}

std::vector<ChangedOptions> ExchangedCases() {
  const auto through = [](Dispatcher dispatcher) {
    return [dispatcher](ModelGraphOptions& o) { o.dispatcher = dispatcher; };
  };
  const auto in = [](Precision precision) { return [precision](ModelGraphOptions& o) { o.precision = precision; }; };
  return {
      {"all-gather", through(Dispatcher::kAllGather)},
      {"DeepEP", through(Dispatcher::kDeepEp)},
      {"HybridEP", through(Dispatcher::kHybridEp)},
      {"heads", [](ModelGraphOptions& o) { o.context_exchange = ContextExchange::kAllToAll; }},
      {"FP8", in(Precision::kFp8)},
      {"MXFP8", in(Precision::kMxfp8)},
      {"NVFP4", in(Precision::kNvfp4)},
      {"pieces", [](ModelGraphOptions& o) { o.overlaps_tensor = true; }},
      {"all of it",
       [](ModelGraphOptions& o) {
         o.overlaps_tensor = true, o.precision = Precision::kFp8, o.dispatcher = Dispatcher::kDeepEp;
         o.context_exchange = ContextExchange::kAllToAll, o.next_tokens = 1;
       }},
  };
}

TEST(SumsOfStepTest, StoredScoresAreComputedAgainWithTheirSoftmax) {
  ModelGraphOptions kept = kShared;
  kept.attention = AttentionKernel::kStored;
  ModelGraphOptions again = kept;
  again.recompute = Recompute::kSelective;
  const auto softmax_s = [&](const ModelGraphOptions& options) {
    return planner::Find(StepOf(options), "elementwise")->backward_s;
  };
  // A rank has 2 of 4 heads of each of four layers, whose 256 x 64 scores pass through memory four times in BF16.
  constexpr double kCopyS = 1e-11;  // A byte, which is read and written.
  EXPECT_NEAR(softmax_s(again) - softmax_s(kept), 4 * (4 * 256 * 64 * 2 * 2.0) / 2 * kCopyS, 1e-12);
}

TEST(SumsOfStepTest, SumsOfOtherExchangesAndPrecisionsAreThoseOfTheStep) {
  for (const auto& [name, change] : ExchangedCases()) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      for (ModelGraphOptions options : {kShared, WithWholeRows(), WithCutWeights(), InStages(2)}) {
        change(options);
        options.recompute = recompute;
        SCOPED_TRACE(StrCat(name, ", TP ", options.tensor_parallel, ", PP ", options.pipeline_parallel, ", sequence ",
                            options.sequence_parallel, ", ZeRO ", options.zero_stage, ", again ",
                            recompute == Recompute::kFull));
        ExpectSumsOfStep(options);
      }
    }
  }
}

// Exchanges of one micro-batch's graph run beside nothing.
TEST(SumsOfStepTest, ExchangesBesideProductsTakeAsLongAsAStepWaitsForThem) {
  std::vector<ChangedOptions> cases = RecomputedCases();
  cases.push_back({"as it is", [](ModelGraphOptions&) {}});
  for (const auto& [name, change] : cases) {
    for (const bool overlaps : {false, true}) {
      SCOPED_TRACE(StrCat(name, overlaps));
      ModelGraphOptions options = kShared;
      options.context_parallel = 1, options.overlaps_tensor = overlaps;
      change(options);
      const StepQuestion question = QuestionFor(options);
      const Profile profile = ProportionalProfile();
      const auto point = PointOf(question.request, profile.cluster, question.layout, question.micro_batch, {});
      ASSERT_TRUE(point.ok()) << point.status().message();
      PriceNotes notes;
      const auto graph = GraphOfRun(question.request, *point, {.count = 4}, profile, notes);
      ASSERT_TRUE(graph.ok()) << graph.status().message();
      const auto exchanges = [](const Instruction& one) {
        return OverTensor(one) && one.id.find(".gate") == std::string::npos;
      };
      const double waits_s = planner::Find(StepOf(options), "tensorExchange")->exposed_s;
      EXPECT_NEAR(SumS(*graph, Pass::kForward, exchanges) + SumS(*graph, Pass::kBackward, exchanges), waits_s,
                  1e-9 * waits_s);
    }
  }
}

TEST(SumsOfStepTest, SumsOfTheSlowestStageAreThoseOfTheStep) {
  for (const int pipeline : {2, 4}) {
    SCOPED_TRACE(pipeline);
    ExpectSumsOfStep(InStages(pipeline));
    ModelGraphOptions shared = InStages(pipeline);
    shared.tensor_parallel = 2;
    ExpectSumsOfStep(shared);
    shared.sequence_parallel = false;
    ExpectSumsOfStep(shared);
    ModelGraphOptions cut = InStages(pipeline);
    cut.zero_stage = 3;
    ExpectSumsOfStep(cut);
  }
  ModelGraphOptions contexts = InStages(2);
  contexts.context_parallel = 2;
  ExpectSumsOfStep(contexts);
  // The stage that has most is the first, the last, or one between.
  for (const std::vector<int>& stages : {std::vector<int>{3, 1}, {1, 3}, {0, 4}, {0, 1, 2, 1}, {0, 0, 3, 1}}) {
    ModelGraphOptions uneven = InStages(static_cast<int>(stages.size()));
    uneven.stages = stages;
    SCOPED_TRACE(StrCat(stages[0], " ", stages[1]));
    ExpectSumsOfStep(uneven);
  }
}

}  // namespace
}  // namespace moeplan::planner
