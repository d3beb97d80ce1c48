// Training graphs of layouts that keep less than all: what is computed again, when, and who reads it; and layers behind
// the model's that predict further tokens. That they take as long as `step` says is in shared_layers_graph_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "models/step/layer_work.h"
#include "models/text.h"
#include "planner/lancet/model_graph.h"
#include "planner/rules/lancet.h"
#include "tests/planner/find_instruction.h"
#include "tests/planner/small_layouts.h"
#include "tests/planner/small_steps.h"

namespace moeplan::planner {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

ModelGraphOptions Alone() {
  return {.batch = 2, .sequence_length = 64, .expert_parallel = 4, .ranks_per_node = 4, .gpus = 8, .gpus_per_node = 4};
}
ModelGraphOptions Selecting(const RecomputeModules& modules) {
  ModelGraphOptions options = Alone();
  options.recompute = Recompute::kSelective;
  options.recompute_modules = modules;
  return options;
}
ModelGraphOptions InFull(int layers = 0) {
  ModelGraphOptions options = Alone();
  options.recompute = Recompute::kFull;
  options.recompute_layers = layers;
  return options;
}

TrainingGraph GraphOf(const ModelGraphOptions& options, const ModelConfig& model = SmallModel()) {
  PriceNotes notes;
  const auto graph = TrainingGraphOf(model, options, ProportionalProfile(), notes);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return graph.ok() ? *graph : TrainingGraph();
}

std::set<std::string> IdsOf(const TrainingGraph& graph, const std::string& ending) {
  std::set<std::string> ids;
  for (const Instruction& one : graph.instructions) {
    if (one.id.ends_with(ending)) ids.insert(one.id);
  }
  return ids;
}

// The forward tensors that the backward pass reads, apart from what computes some again.
std::set<std::string> KeptTensors(const TrainingGraph& graph) {
  std::set<std::string> made, kept;
  for (const Instruction& one : graph.instructions) {
    if (one.phase == Pass::kForward) made.insert(one.outputs.begin(), one.outputs.end());
    if (one.phase == Pass::kForward || one.id.ends_with(".recomputed")) continue;
    for (const std::string& tensor : one.inputs) {
      if (made.contains(tensor)) kept.insert(tensor);
    }
  }
  return kept;
}

TEST(RecomputedGraphTest, OfALayerThatIsComputedAgainOnlyItsInputIsKept) {
  const TrainingGraph graph = GraphOf(InFull());
  for (const std::string& tensor : KeptTensors(graph)) {
    EXPECT_TRUE(!tensor.starts_with("layer") || tensor.ends_with(".add2.y")) << tensor;
  }
  // All of it runs once more, on what the layer before it made.
  std::set<std::string> again;
  for (const Instruction& one : graph.instructions) {
    if (one.phase == Pass::kForward && one.id.starts_with("layer")) again.insert(one.id + ".recomputed");
  }
  EXPECT_EQ(IdsOf(graph, ".recomputed"), again);
  EXPECT_THAT(Find(graph, "layer2.norm1.recomputed").inputs, Contains("layer1.add2.y"));
  EXPECT_THAT(Find(graph, "layer2.all_to_all1.recomputed").inputs, Contains("layer2.dispatch.recomputed.y"));
  EXPECT_THAT(Find(graph, "layer2.combine.recomputed").inputs, Contains("layer2.dispatch.recomputed.y2"));
  EXPECT_EQ(Find(graph, "layer2.all_to_all1.recomputed").bytes, Find(graph, "layer2.all_to_all1").bytes);
  EXPECT_THAT(Find(graph, "layer2.experts.dw").inputs, Contains("layer2.all_to_all1.recomputed.y"));
}

TEST(RecomputedGraphTest, LayersThatAreComputedAgainTogetherKeepTheFirstOnesInput) {
  ModelGraphOptions options = InFull();
  options.recompute_chunk = 2;
  const TrainingGraph graph = GraphOf(options);
  std::set<std::string> of_layers;
  for (const std::string& tensor : KeptTensors(graph)) {
    if (tensor.starts_with("layer")) of_layers.insert(tensor);
  }
  EXPECT_EQ(of_layers, std::set<std::string>({"layer1.add2.y", "layer3.add2.y"}));
  EXPECT_EQ(IdsOf(graph, ".recomputed"), IdsOf(GraphOf(InFull()), ".recomputed"));
  EXPECT_THAT(Find(graph, "layer3.norm1.recomputed").inputs, Contains("layer2.add2.recomputed.y"));
  EXPECT_LT(Place(graph, "layer3.add2.recomputed"), Place(graph, "layer3.add2.dx"));
  EXPECT_GT(Place(graph, "layer1.norm1.recomputed"), Place(graph, "layer2.norm1.dx"));
  // Chunks of a virtual stage begin with its first layer.
  options.recompute_chunk = 3;
  EXPECT_THAT(Find(GraphOf(options), "layer3.norm1.recomputed").inputs, Contains("layer2.add2.y"));
}

TEST(RecomputedGraphTest, ItBeginsOnceTheGradientsOfItsOutputAreThere) {
  const TrainingGraph graph = GraphOf(InFull());
  EXPECT_THAT(Find(graph, "layer2.norm1.recomputed").inputs, Contains(HasSubstr("d(layer2.add2.y)")));
  EXPECT_GT(Place(graph, "layer2.norm1.recomputed"), Place(graph, "layer3.norm1.dx"));
  EXPECT_LT(Place(graph, "layer2.add2.recomputed"), Place(graph, "layer2.add2.dx"));
}

TEST(RecomputedGraphTest, SoManyLayersOfEachVirtualStageAreComputedAgain) {
  const std::set<std::string> of_one = {"layer0.attention.recomputed"};
  EXPECT_EQ(IdsOf(GraphOf(InFull(1)), ".attention.recomputed"), of_one);
  ModelGraphOptions stage = InFull(1);
  stage.pipeline_parallel = 2, stage.stage = 1;
  EXPECT_EQ(IdsOf(GraphOf(stage), ".attention.recomputed"), std::set<std::string>({"layer2.attention.recomputed"}));
}

TEST(RecomputedGraphTest, ANormIsComputedAgainForThoseThatReadIt) {
  const TrainingGraph graph = GraphOf(Selecting({RecomputeModule::kLayerNorm}));
  EXPECT_EQ(IdsOf(graph, ".recomputed").size(), 8u);  // Two of each layer; the last norm is in none.
  EXPECT_THAT(KeptTensors(graph), Not(Contains("layer0.norm1.y")));
  EXPECT_THAT(Find(graph, "layer0.qkv.dw").inputs, Contains("layer0.norm1.recomputed.y"));
  EXPECT_LT(Place(graph, "layer0.norm1.recomputed"), Place(graph, "layer0.qkv.dw"));
  // The rows that it reads are kept.
  EXPECT_THAT(Find(graph, "layer1.norm1.recomputed").inputs, Contains("layer0.add2.y"));
}

TEST(RecomputedGraphTest, ScoresAreComputedAgainFromKeptQueriesAndTheirOutputIsKept) {
  const TrainingGraph graph = GraphOf(Selecting({}));
  EXPECT_EQ(IdsOf(graph, ".recomputed").size(), 4u);
  EXPECT_THAT(Find(graph, "layer0.attention.recomputed").inputs, Contains("layer0.rotary.y"));
  EXPECT_THAT(Find(graph, "layer0.attention.dx").inputs, Contains("layer0.attention.recomputed.y"));
  EXPECT_THAT(Find(graph, "layer0.out.dw").inputs, Contains("layer0.attention.y"));
}

TEST(RecomputedGraphTest, AMoeLayerSendsItsRowsOnceMore) {
  const TrainingGraph graph = GraphOf(Selecting({RecomputeModule::kMoe}));
  for (const char* const id : {"gate", "dispatch", "all_to_all1", "experts", "all_to_all2", "combine"}) {
    EXPECT_THAT(IdsOf(graph, ".recomputed"), Contains(std::string("layer2.") + id + ".recomputed"));
  }
  EXPECT_EQ(IdsOf(graph, ".recomputed").size(), 12u);
  // Its input is kept.
  EXPECT_THAT(Find(graph, "layer2.gate.recomputed").inputs, Contains("layer2.norm2.y"));
  // Weight gradients of the layer behind it are there to run beside these exchanges.
  const auto answer = PlanGraph(graph, nullptr);
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(std::ranges::any_of(answer->lancet.weight_gradients, [](const LancetAnswer::Assignment& one) {
    return one.all_to_all.ends_with(".recomputed");
  }));
}

// Latent attention: products up to heads and the rotary embedding are computed again, those down are kept.
TEST(RecomputedGraphTest, LatentProjectionsAreComputedAgainFromLatentRows) {
  ModelConfig model = SmallModel();
  model.latent_attention = {.q_rank = 16, .kv_rank = 8, .nope_head_dim = 8, .rope_head_dim = 4, .value_head_dim = 8};
  const TrainingGraph graph = GraphOf(Selecting({RecomputeModule::kMlaUpProj}), model);
  const Instruction &there = Find(graph, "layer0.qkv"), &again = Find(graph, "layer0.qkv.recomputed");
  EXPECT_LT(*again.time_s, *there.time_s);
  EXPECT_GT(*again.time_s, 0);
  EXPECT_THAT(Find(graph, "layer0.rotary.recomputed").inputs, Contains("layer0.qkv.recomputed.y"));
  EXPECT_THAT(Find(graph, "layer0.attention.dx").inputs, Contains("layer0.rotary.recomputed.y"));
}

TEST(RecomputedGraphTest, LessIsKept) {
  const auto peak = [](const ModelGraphOptions& options) {
    const auto answer = PlanGraph(GraphOf(options), nullptr);
    EXPECT_TRUE(answer.ok());
    return *answer->lancet.unscheduled_peak_bytes;
  };
  const double all = peak(Alone());
  EXPECT_LT(peak(InFull()), 0.9 * all);
  EXPECT_LT(peak(InFull()), peak(InFull(1)));
  EXPECT_LT(peak(Selecting({RecomputeModule::kMoe})), all);
  EXPECT_LT(peak(Selecting({RecomputeModule::kLayerNorm})), all);
}

// Gathered weights of ZeRO-3 serve what is computed again, too.
TEST(RecomputedGraphTest, WeightsAreThoseOfTheBackwardPass) {
  ModelGraphOptions options = InFull();
  options.zero_stage = 3;
  EXPECT_THAT(Find(GraphOf(options), "layer0.qkv.recomputed").inputs, Contains("layer0.qkv.w.again"));
}

TEST(RecomputedGraphTest, FurtherTokensHaveTheModelsEmbeddingAndHeadOnce) {
  const auto parameters = [](const ModelGraphOptions& options) {
    std::map<bool, double> of;  // Of experts, and of all else.
    for (const Instruction& one : GraphOf(options).instructions) {
      if (one.weight_gradient) of[one.op == InstructionOp::kExpert] += one.output_bytes.front() / 4;
    }
    return of;
  };
  const std::map<bool, double> before = parameters(Alone());
  ModelGraphOptions two = Alone();
  two.next_tokens = 2;
  std::map<bool, double> after = parameters(two);
  // Each has attention, experts, a router, and the product of two rows to one.
  EXPECT_EQ(after[false] - before.at(false), 2 * (kAttention + kRouter + 2 * 32 * 32));
  EXPECT_EQ(after[true] - before.at(true), 2 * 8 / 4 * kExpert);
  // The head's gradient is counted where the last that add to it do, so a bucket that it fills waits for all.
  const TrainingGraph graph = GraphOf(two);
  EXPECT_EQ(Find(graph, "next1.head.dw").output_bytes.front(), 4 * kVocabulary);
  for (const char* const other : {"head.dw", "next2.head.dw"}) {
    EXPECT_EQ(Find(graph, other).output_bytes.front(), 0);
    EXPECT_LT(Place(graph, other), Place(graph, "next1.head.dw"));
  }
  // The first further token has the embedding if the model's own is on another stage.
  ModelGraphOptions last = two;
  last.pipeline_parallel = 2, last.stage = 1;
  EXPECT_EQ(Find(GraphOf(last), "next1.embedding.dw").output_bytes.front(), 4 * kVocabulary);
  EXPECT_EQ(Find(GraphOf(last), "next2.embedding.dw").output_bytes.front(), 0);
}

// With ZeRO-3 no instruction reads weights that nobody has gathered: those of other instructions are whole since the
// forward pass.
TEST(RecomputedGraphTest, WeightsAreGatheredBeforeTheyAreRead) {
  const auto expect_gathered = [](int next_tokens, int pipeline, int chunk) {
    SCOPED_TRACE(StrCat(next_tokens, " further tokens, PP ", pipeline, ", ", chunk, " layers together"));
    ModelGraphOptions options = InFull();
    options.zero_stage = 3;
    options.next_tokens = next_tokens;
    options.pipeline_parallel = pipeline;
    options.stage = pipeline - 1;
    options.recompute_chunk = chunk;
    std::set<std::string> made;
    int read = 0;
    for (const Instruction& one : GraphOf(options).instructions) {
      for (const std::string& tensor : one.inputs) {
        if (!tensor.ends_with(".w") && !tensor.ends_with(".w.again")) continue;
        // Experts of four ranks have other replicas than one where a stage has four.
        if (tensor.find("experts") != std::string::npos && pipeline == 2) continue;
        EXPECT_TRUE(made.contains(tensor)) << one.id << " reads " << tensor;
        ++read;
      }
      made.insert(one.outputs.begin(), one.outputs.end());
    }
    EXPECT_GE(read, 20);
  };
  for (const int next_tokens : {0, 1, 2}) {
    for (const int pipeline : {1, 2}) expect_gathered(next_tokens, pipeline, 1);
  }
  for (const int chunk : {2, 3, 4}) expect_gathered(0, 1, chunk);
}

TEST(RecomputedGraphTest, WhatNoStepHasIsRefused) {
  const auto refusal = [](auto change) {
    ModelGraphOptions options = Alone();
    change(options);
    PriceNotes notes;
    const auto graph = TrainingGraphOf(SmallModel(), options, ProportionalProfile(), notes);
    EXPECT_TRUE(graph.ok() || graph.status().code() == StatusCode::kInvalidInput);
    return graph.ok() ? std::string() : graph.status().message();
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_THAT(refusal([](auto& o) { o.next_tokens = -1; }), HasSubstr("mtpLayers: found -1"));
  EXPECT_THAT(refusal([](auto& o) { o.next_tokens = 1000000000; }), HasSubstr("mtpLayers: found 1000000000"));
  EXPECT_THAT(refusal([](auto& o) { o.recompute_layers = 1; }), HasSubstr("recomputeLayers: found them without"));
  EXPECT_THAT(refusal([](auto& o) { o.recompute = Recompute::kFull, o.recompute_layers = 5; }),
              HasSubstr("recomputeLayers: found 5"));
  EXPECT_THAT(refusal([](auto& o) { o.recompute_modules = {RecomputeModule::kMoe}; }),
              HasSubstr("recomputeModules: found some without recompute SELECTIVE"));
  EXPECT_THAT(refusal([](auto& o) {
                o.recompute = Recompute::kSelective, o.recompute_modules = {RecomputeModule::kMlaUpProj};
              }),
              HasSubstr("recomputeModules: found MLA_UP_PROJ"));
  EXPECT_EQ(refusal([](auto& o) { o.virtual_stages = 2; }),
            "virtual stages: found 2, expected 1 where there is one stage");
  EXPECT_THAT(refusal([](auto& o) { o.stages = {1, 2}; }), HasSubstr("stages: found 2, expected one of all 4 layers"));
}

// Each tensor-parallel rank has a part of the shared expert, which is computed again by itself.
TEST(RecomputedGraphTest, ASharedExpertIsComputedAgainBesideTensorParallelism) {
  ModelConfig model = SmallModel();
  model.shared_hidden_dim = 64;
  ModelGraphOptions options = Selecting({RecomputeModule::kSharedExperts});
  options.tensor_parallel = 2;
  const TrainingGraph graph = GraphOf(options, model);
  EXPECT_EQ(IdsOf(graph, ".recomputed"),
            std::set<std::string>({"layer2.shared_activation.recomputed", "layer2.shared_down.recomputed",
                                   "layer2.shared_down_sum.recomputed", "layer2.shared_up.recomputed",
                                   "layer2.shared_up_in.recomputed", "layer3.shared_activation.recomputed",
                                   "layer3.shared_down.recomputed", "layer3.shared_down_sum.recomputed",
                                   "layer3.shared_up.recomputed", "layer3.shared_up_in.recomputed"}));
  EXPECT_THAT(Find(graph, "layer2.shared_down.dw").inputs, Contains("layer2.shared_activation.recomputed.y"));
}

TEST(RecomputedGraphTest, AVirtualStageIsARunOfLayersAsAStageIs) {
  ModelGraphOptions interleaved = Alone(), deep = Alone();
  interleaved.pipeline_parallel = 2, interleaved.virtual_stages = 2;
  deep.pipeline_parallel = 4, deep.gpus = 16;
  for (int stage = 0; stage < 4; ++stage) {
    interleaved.stage = deep.stage = stage;
    std::set<std::string> of_interleaved, of_deep;
    for (const Instruction& one : GraphOf(interleaved).instructions) of_interleaved.insert(one.id);
    for (const Instruction& one : GraphOf(deep).instructions) of_deep.insert(one.id);
    EXPECT_EQ(of_interleaved, of_deep) << stage;
  }
  interleaved.stage = 4;
  PriceNotes notes;
  EXPECT_EQ(TrainingGraphOf(SmallModel(), interleaved, ProportionalProfile(), notes).status().message(),
            "stage: found 4, expected 0 to 3");
}

}  // namespace
}  // namespace moeplan::planner
