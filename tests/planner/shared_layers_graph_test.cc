// Training graphs of layouts whose ranks share layers, sequences and weights, or have a stage of the layers: which
// collectives there are, over whom, of how many bytes, behind what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "models/plan/step_tasks.h"
#include "models/schedule/schedules.h"
#include "models/text.h"
#include "planner/lancet/model_graph.h"
#include "planner/layout/cost_book.h"
#include "planner/rules/lancet.h"
#include "tests/planner/find_instruction.h"
#include "tests/planner/shared_layouts.h"
#include "tests/planner/small_layouts.h"
#include "tests/planner/small_steps.h"

namespace moeplan::planner {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// ---- Tensor parallelism.

TEST(SharedLayersGraphTest, SequenceParallelRanksGatherRowsBeforeProductsAndScatterTheirSums) {
  const TrainingGraph graph = GraphOf(kShared);
  ExpectCollective(Find(graph, "layer0.qkv_in"), InstructionOp::kAllGather, Pass::kForward, kRowsBytes, {2, 2});
  ExpectCollective(Find(graph, "layer0.out_sum"), InstructionOp::kReduceScatter, Pass::kForward, kRowsBytes, {2, 2});
  ExpectCollective(Find(graph, "layer0.qkv_in.again"), InstructionOp::kAllGather, Pass::kBackward, kRowsBytes, {2, 2});
  ExpectCollective(Find(graph, "layer0.qkv_in.dx"), InstructionOp::kReduceScatter, Pass::kBackward, kRowsBytes, {2, 2});
  ExpectCollective(Find(graph, "layer0.out_sum.dx"), InstructionOp::kAllGather, Pass::kBackward, kRowsBytes, {2, 2});
  // Four blocks of attention, two networks without experts and the head gather and give back; the embedding's rows are
  // summed beside those of the blocks.
  EXPECT_EQ(Count(graph, InstructionOp::kAllGather, OverTensor), 7 + 7 + 7);
  EXPECT_EQ(Count(graph, InstructionOp::kReduceScatter, OverTensor), 7 + 7);
}

TEST(SharedLayersGraphTest, ProductsWaitForGatheredRowsAndTheirInputGradientDoesNotWaitForThemAgain) {
  const TrainingGraph graph = GraphOf(kShared);
  EXPECT_THAT(Find(graph, "layer0.qkv_in").inputs, ElementsAre("layer0.norm1.y"));
  EXPECT_THAT(Find(graph, "layer0.qkv").inputs, ElementsAre("layer0.qkv_in.y", "layer0.qkv.w"));
  EXPECT_THAT(Find(graph, "layer0.add1").inputs, Contains("layer0.out_sum.y"));
  // The second gather begins with the gradients of the products that need it.
  EXPECT_THAT(Find(graph, "layer0.qkv_in.again").inputs,
              ElementsAre("layer0.norm1.y", "d(layer0.qkv.y).layer0.rotary"));
  EXPECT_THAT(Find(graph, "layer0.qkv.dw").inputs, Contains("layer0.qkv_in.again.y"));
  EXPECT_THAT(Find(graph, "layer0.qkv.dw").inputs, Not(Contains("layer0.qkv_in.y")));
  EXPECT_THAT(Find(graph, "layer0.qkv.dx").inputs, ElementsAre("d(layer0.qkv.y).layer0.rotary"));
  EXPECT_THAT(Find(graph, "layer0.qkv_in.dx").inputs, ElementsAre("d(layer0.qkv_in.y).layer0.qkv"));
  EXPECT_THAT(Find(graph, "layer0.norm1.dx").inputs, Contains("d(layer0.norm1.y).layer0.qkv_in"));
}

TEST(SharedLayersGraphTest, WholeRowsAreSummedBehindABlockAndTheirGradientsInFrontOfIt) {
  const TrainingGraph graph = GraphOf(WithWholeRows());
  ExpectCollective(Find(graph, "layer0.out_sum"), InstructionOp::kAllReduce, Pass::kForward, kRowsBytes, {2, 2});
  ExpectCollective(Find(graph, "layer0.qkv_in.dx"), InstructionOp::kAllReduce, Pass::kBackward, kRowsBytes, {2, 2});
  EXPECT_FALSE(Has(graph, "layer0.qkv_in"));
  EXPECT_FALSE(Has(graph, "layer0.out_sum.dx"));
  EXPECT_THAT(Find(graph, "layer0.qkv").inputs, ElementsAre("layer0.norm1.y", "layer0.qkv.w"));
  // The gradient of the sum is that of its terms.
  EXPECT_THAT(Find(graph, "layer0.out.dx").inputs, Contains("d(layer0.out_sum.y).layer0.add1"));
  EXPECT_THAT(Find(graph, "layer0.norm1.dx").inputs, Contains("d(layer0.norm1.y).layer0.qkv_in"));
  // Forward behind four blocks of attention, two networks and the embedding, backward in front of the head too; and
  // the gradients of two gates.
  EXPECT_EQ(Count(graph, InstructionOp::kAllReduce, OverTensor), 7 + 7 + 2);
}

TEST(SharedLayersGraphTest, RanksHaveHeadsColumnsAndAPartOfTheVocabulary) {
  const TrainingGraph graph = GraphOf(kShared);
  const double product = 2e-12 * 2 * kTokens;  // Seconds of a product, over its features.
  EXPECT_NEAR(*Find(graph, "layer0.qkv").time_s, product * 32 * 8 * (2 + 1 + 1), 1e-15);
  EXPECT_NEAR(*Find(graph, "layer0.out").time_s, product * 16 * 32, 1e-15);
  EXPECT_NEAR(*Find(graph, "layer0.up").time_s, product * 32 * 32, 1e-15);
  EXPECT_NEAR(*Find(graph, "head").time_s, product * 32 * 50, 1e-15);
  // With sequence parallelism alone a rank has half of the rows between blocks.
  EXPECT_EQ(Find(graph, "layer0.norm1").output_bytes, std::vector<double>{kRowsBytes / 2});
  EXPECT_EQ(Find(GraphOf(WithWholeRows()), "layer0.norm1").output_bytes, std::vector<double>{kRowsBytes});
}

TEST(SharedLayersGraphTest, SharedExpertsAreCutAsNetworksAre) {
  ModelConfig model = SmallModel();
  model.shared_hidden_dim = 16;
  const TrainingGraph graph = GraphOf(kShared, model);
  EXPECT_NEAR(*Find(graph, "layer2.shared_up").time_s, 2e-12 * 2 * kTokens * 32 * 8, 1e-15);
  ExpectCollective(Find(graph, "layer2.shared_up_in"), InstructionOp::kAllGather, Pass::kForward, kRowsBytes, {2, 2});
  ExpectCollective(Find(graph, "layer2.shared_down_sum"), InstructionOp::kReduceScatter, Pass::kForward, kRowsBytes,
                   {2, 2});
  EXPECT_THAT(Find(graph, "layer2.add2").inputs, Contains("layer2.shared_down_sum.y"));
  // The gate reads the rank's own rows.
  EXPECT_THAT(Find(graph, "layer2.gate").inputs, Contains("layer2.norm2.y"));
}

// What a MoE layer exchanges is what its schedule does: S1, of which each rank sends its own rows.
void ExpectExchangesOfTheSchedule(const ModelGraphOptions& options) {
  const TrainingGraph graph = GraphOf(options);
  Workload workload = *graph.workload;
  workload.phase = Phase::kTraining;
  const auto resolved = ResolveWorkload(workload, {.nodes = 2, .gpus_per_node = 4});
  ASSERT_TRUE(resolved.ok()) << resolved.status().message();
  const auto schedule = BuildSchedule({.family = Family::kParmS1}, *resolved, {.nodes = 2, .gpus_per_node = 4});
  ASSERT_TRUE(schedule.ok()) << schedule.status().message();
  const auto bytes = [&](const std::string& name) {
    const auto task = std::ranges::find(schedule->tasks, name, &Task::name);
    return task == schedule->tasks.end() ? 0 : task->size;
  };
  EXPECT_EQ(Find(graph, "layer2.all_to_all1").bytes, bytes("dispatch_a2a"));
  EXPECT_EQ(Find(graph, "layer2.all_to_all2").bytes, bytes("combine_a2a"));
  EXPECT_EQ(Find(graph, "layer2.whole").bytes, bytes("gather_output"));
  EXPECT_EQ(Find(graph, "layer2.slice.dx").bytes, bytes("grad_gather_input"));
  EXPECT_EQ(Find(graph, "layer2.gate.sum").bytes, bytes("grad_sum_gate"));
  EXPECT_EQ(Find(graph, "layer2.experts").work.at(0).size, bytes("expert"));
  EXPECT_EQ(Find(graph, "layer2.all_to_all1").group_size, 4);
  if (options.expert_sharding_parallel == 1) return;
  EXPECT_EQ(Find(graph, "layer2.combine").work.at(1).size, bytes("sum_shards"));
  EXPECT_EQ(Find(graph, "layer2.dispatch.dx").work.at(1).size, bytes("grad_sum_shards"));
}

TEST(SharedLayersGraphTest, MoeLayersExchangeWhatTheirScheduleDoes) {
  ExpectExchangesOfTheSchedule(WithWholeRows());
  ExpectExchangesOfTheSchedule(WithSharedExperts());
}

TEST(SharedLayersGraphTest, GatesSeeTheirOwnRowsAndTheirGradientsAreSummed) {
  const TrainingGraph whole = GraphOf(WithWholeRows()), cut = GraphOf(kShared);
  for (const TrainingGraph* const graph : {&whole, &cut}) {
    EXPECT_NEAR(*Find(*graph, "layer2.gate").time_s, 1e-11 * kRowsBytes / 2, 1e-15);
    ExpectCollective(Find(*graph, "layer2.gate.sum"), InstructionOp::kAllReduce, Pass::kBackward, 4 * kRouter, {2, 2});
    EXPECT_THAT(Find(*graph, "layer2.gate.sum").inputs, ElementsAre("d(layer2.gate.w)"));
    EXPECT_THAT(Find(*graph, "gradients.1").inputs, Contains("layer2.gate.sum.y"));
    EXPECT_THAT(Find(*graph, "gradients.1").inputs, Not(Contains("d(layer2.gate.w)")));
  }
  EXPECT_THAT(Find(whole, "layer2.whole").inputs, ElementsAre("layer2.combine.y"));
  EXPECT_THAT(Find(whole, "layer2.slice.dx").inputs,
              ElementsAre("d(layer2.slice.y).layer2.dispatch", "d(layer2.slice.y).layer2.gate"));
  EXPECT_THAT(Find(whole, "layer2.norm2.dx").inputs, Contains("d(layer2.norm2.y).layer2.slice"));
  // With sequence parallelism rows stay where they are.
  EXPECT_FALSE(Has(cut, "layer2.whole"));
  EXPECT_FALSE(Has(cut, "layer2.slice.dx"));
}

// ---- Expert sharding.

TEST(SharedLayersGraphTest, RowsGoToAllPartsOfAnExpertAndAreSummedWhereTheyComeBack) {
  const TrainingGraph graph = GraphOf(WithSharedExperts());
  const double own = 2 * kRowsBytes / 2;  // Two experts for each of half of the rows.
  for (const char* const id : {"layer2.all_to_all1", "layer2.all_to_all2"}) {
    ExpectCollective(Find(graph, id), InstructionOp::kAllToAll, Pass::kForward, 2 * own, {4, 4});
    ExpectCollective(Find(graph, StrCat(id, ".dx")), InstructionOp::kAllToAll, Pass::kBackward, 2 * own, {4, 4});
  }
  // Dispatched once, and summed on the way back; combined after a sum.
  EXPECT_NEAR(*Find(graph, "layer2.dispatch").time_s, 1e-11 * own, 1e-15);
  EXPECT_NEAR(*Find(graph, "layer2.dispatch.dx").time_s, 1e-11 * (own + 2 * own), 1e-15);
  EXPECT_NEAR(*Find(graph, "layer2.combine").time_s, 1e-11 * (own + 2 * own), 1e-15);
  EXPECT_NEAR(*Find(graph, "layer2.combine.dx").time_s, 1e-11 * own, 1e-15);
  EXPECT_EQ(Find(graph, "layer2.combine").work.size(), 2u);
  // Twice the rows, by half of the hidden dimension of 4 experts.
  const Instruction& experts = Find(graph, "layer2.experts");
  ASSERT_EQ(experts.work.size(), 1u);
  EXPECT_EQ(std::get<KernelKey>(experts.work[0].key).hidden_dim, 24);
  EXPECT_EQ(experts.work[0].size, 2 * 2 * (2 * kTokens / 2) * kExpert / 2);
  EXPECT_EQ(experts.output_bytes, std::vector<double>{2 * own});
  ExpectCollective(Find(graph, "expert_gradients.1"), InstructionOp::kReduceScatter, Pass::kBackward,
                   4 * 2 * 4 * kExpert / 2, {2, 1});
}

// ---- Context parallelism.

TEST(SharedLayersGraphTest, KeysAndValuesAreGatheredOverContextsAndTheirGradientsScattered) {
  const TrainingGraph graph = GraphOf(kShared);
  // One head's key and value of 8 each, of both contexts. Contexts lie across the experts' ranks, on two nodes.
  const double bytes = 2 * kTokens * 2 * (8 + 8);
  ExpectCollective(Find(graph, "layer2.contexts"), InstructionOp::kAllGather, Pass::kForward, bytes, {2, 1});
  ExpectCollective(Find(graph, "layer2.contexts.again"), InstructionOp::kAllGather, Pass::kBackward, bytes, {2, 1});
  ExpectCollective(Find(graph, "layer2.contexts.dx"), InstructionOp::kReduceScatter, Pass::kBackward, bytes, {2, 1});
  EXPECT_EQ(Count(graph, InstructionOp::kAllGather, OfContexts), 2 * 4);
  EXPECT_EQ(Count(graph, InstructionOp::kReduceScatter, OfContexts), 4);
  EXPECT_THAT(Find(graph, "layer2.attention").inputs, ElementsAre("layer2.rotary.y", "layer2.contexts.y"));
  EXPECT_THAT(Find(graph, "layer2.attention.dx").inputs, Contains("layer2.contexts.again.y"));
  EXPECT_THAT(Find(graph, "layer2.attention.dx").inputs, Not(Contains("layer2.contexts.y")));
  EXPECT_THAT(Find(graph, "layer2.rotary.dx").inputs, Contains("d(layer2.rotary.y).layer2.contexts"));
}

// ---- Weights that are cut.

TEST(SharedLayersGraphTest, WeightsAreGatheredBeforeBothPassesOfALayerAndTheirGradientsScatteredBehindIt) {
  const TrainingGraph graph = GraphOf(WithCutWeights());
  const double dense = kAttention + kDense, of_experts = kAttention + kRouter, experts = 2 * kExpert;
  ExpectCollective(Find(graph, "layer0.weights"), InstructionOp::kAllGather, Pass::kForward, 2 * dense, {8, 4});
  ExpectCollective(Find(graph, "layer0.weights.again"), InstructionOp::kAllGather, Pass::kBackward, 2 * dense, {8, 4});
  ExpectCollective(Find(graph, "layer2.weights"), InstructionOp::kAllGather, Pass::kForward, 2 * of_experts, {8, 4});
  ExpectCollective(Find(graph, "layer2.expert_weights"), InstructionOp::kAllGather, Pass::kForward, 2 * experts,
                   {2, 1});
  // Embedding, four layers and head; two layers have experts. No gather follows the optimizer.
  EXPECT_EQ(Count(graph, InstructionOp::kAllGather, OfReplicas), 2 * (6 + 2));
  EXPECT_EQ(Count(graph, InstructionOp::kReduceScatter, OfReplicas), 6 + 2);
  EXPECT_EQ(graph.instructions.back().id, "optimizer");
  EXPECT_THAT(Find(graph, "gradients.2").inputs, ElementsAre("d(layer3.gate.w)", "d(layer3.out.w)", "d(layer3.qkv.w)"));
  EXPECT_EQ(Find(graph, "gradients.2").bytes, 4 * of_experts);
  EXPECT_EQ(Find(graph, "expert_gradients.1").bytes, 4 * experts);
}

TEST(SharedLayersGraphTest, LayersWaitForTheirWeightsWhichAreGatheredOneLayerAhead) {
  const TrainingGraph graph = GraphOf(WithCutWeights());
  EXPECT_THAT(Find(graph, "layer2.weights").outputs, ElementsAre("layer2.qkv.w", "layer2.out.w", "layer2.gate.w"));
  EXPECT_THAT(Find(graph, "layer2.qkv").inputs, Contains("layer2.qkv.w"));
  EXPECT_THAT(Find(graph, "layer2.expert_weights").outputs, ElementsAre("layer2.experts.w"));
  EXPECT_THAT(Find(graph, "layer2.experts.dx").inputs, Contains("layer2.experts.w.again"));
  EXPECT_THAT(Find(graph, "layer2.qkv.dx").inputs, Contains("layer2.qkv.w.again"));
  EXPECT_THAT(Find(graph, "layer2.qkv.dw").inputs, Not(Contains("layer2.qkv.w.again")));
  // Before anything of the layer above goes back, and ahead of that layer's gradients on the stream.
  EXPECT_THAT(Find(graph, "layer2.weights.again").inputs,
              ElementsAre("layer2.weights.shards", "d(layer3.add2.y).norm"));
  EXPECT_LT(Place(graph, "layer2.weights.again"), Place(graph, "layer3.add2.dx"));
  EXPECT_LT(Place(graph, "layer3.qkv.dw"), Place(graph, "gradients.2"));
  EXPECT_LT(Place(graph, "gradients.2"), Place(graph, "layer2.add2.dx"));
}

// A cut range reads gathered weights whole, and no range reaches over their gathering.
TEST(SharedLayersGraphTest, GatheredWeightsStayWholeWhereARangeIsCut) {
  ModelGraphOptions options = WithCutWeights();
  options.batch = 4096;
  const TrainingGraph graph = GraphOf(options);
  const auto answer = PlanGraph(graph, nullptr);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  const LancetAnswer& lancet = answer->lancet;
  ASSERT_FALSE(lancet.partitions.empty());
  bool cuts_experts = false;
  for (const LancetAnswer::Partition& one : lancet.partitions) {
    for (const std::string& tensor : one.split) EXPECT_FALSE(tensor.ends_with(".w")) << tensor;
    const auto first = Place(graph, one.first), last = Place(graph, one.last);
    for (auto i = first; i <= last; ++i) {
      EXPECT_FALSE(OfReplicas(graph.instructions[i])) << one.first << " to " << one.last;
      cuts_experts =
          cuts_experts || (graph.instructions[i].op == InstructionOp::kExpert && one.axis == CutAxis::kSamples);
    }
  }
  EXPECT_TRUE(cuts_experts);
}

TEST(SharedLayersGraphTest, TheSecondStageOfZeroSendsWhatTheFirstDoes) {
  ModelGraphOptions first = kShared, second = kShared;
  second.zero_stage = 2;
  EXPECT_EQ(GraphOf(first), GraphOf(second));
}

// ---- Pipeline stages.

constexpr double kStageBytes = 128 * 32 * 2;  // Rows that the ranks of one tensor-parallel group of InStages pass on.

TEST(SharedLayersGraphTest, StagesHaveAllLayersOnceAndTheEndsTheRest) {
  for (const int pipeline : {2, 4}) {
    ModelGraphOptions options = InStages(pipeline);
    std::vector<std::string> blocks;
    for (int stage = 0; stage < pipeline; ++stage) {
      options.stage = stage;
      const TrainingGraph graph = GraphOf(options);
      for (const Instruction& one : graph.instructions) {
        if (one.id.ends_with(".attention")) blocks.push_back(one.id);
      }
      EXPECT_EQ(Has(graph, "embedding"), stage == 0);
      EXPECT_EQ(Has(graph, "head"), stage == pipeline - 1);
      EXPECT_EQ(Has(graph, "loss"), stage == pipeline - 1);
    }
    EXPECT_THAT(blocks, ElementsAre("layer0.attention", "layer1.attention", "layer2.attention", "layer3.attention"));
  }
}

TEST(SharedLayersGraphTest, AStageWithoutExpertsHasNoWeightsOfTheirsToGather) {
  ModelGraphOptions options = InStages(2);
  options.expert_parallel = options.ranks_per_node = 2;  // Two ranks have the same experts.
  options.stage = 0;
  EXPECT_TRUE(Has(GraphOf(options), "weights"));
  EXPECT_FALSE(Has(GraphOf(options), "expert_weights"));
  options.stage = 1;
  EXPECT_TRUE(Has(GraphOf(options), "expert_weights"));
}

TEST(SharedLayersGraphTest, AStageSendsRowsOnAndTheirGradientsBack) {
  ModelGraphOptions options = InStages(4);
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    options.stage = stage;
    const TrainingGraph graph = GraphOf(options);
    const bool first = stage == 0, last = stage == 3;
    const char *const forward = last ? "received" : "passed_on", *const back = first ? "passed_on.dx" : "received.dx";
    ExpectCollective(Find(graph, forward), InstructionOp::kSend, Pass::kForward, kStageBytes, {2, 1});
    ExpectCollective(Find(graph, back), InstructionOp::kSend, Pass::kBackward, kStageBytes, {2, 1});
    // One each way: what else comes did so while others were sent.
    EXPECT_EQ(Count(graph, InstructionOp::kSend, [](const Instruction&) { return true; }), 2);
    if (!first && !last) {
      EXPECT_EQ(Find(graph, "received").time_s, 0);
      EXPECT_EQ(Find(graph, "passed_on.dx").time_s, 0);
    }
    const std::string layer = StrCat("layer", stage, ".");
    if (!first) {
      EXPECT_THAT(Find(graph, layer + "norm1").inputs, ElementsAre("received.y"));
      EXPECT_THAT(Find(graph, "received.dx").inputs,
                  ElementsAre("d(received.y)." + layer + "add1", "d(received.y)." + layer + "norm1"));
    }
    if (!last) {
      EXPECT_THAT(Find(graph, "passed_on").inputs, ElementsAre(layer + "add2.y"));
      EXPECT_THAT(Find(graph, "passed_on.dx").inputs, ElementsAre("passed_on.y"));
      EXPECT_THAT(Find(graph, layer + "add2.dx").inputs, Contains("d(" + layer + "add2.y).passed_on"));
    }
    EXPECT_EQ(graph.instructions.back().id, "weights");
  }
}

TEST(SharedLayersGraphTest, RowsOfATensorParallelRankAreItsOwnWhereTheyAreCut) {
  ModelGraphOptions options = InStages(2);
  options.tensor_parallel = 2;
  options.stage = 0;
  EXPECT_EQ(Find(GraphOf(options), "passed_on").bytes, kStageBytes / 2);
  // Sums of gradients are on COPY then.
  EXPECT_EQ(Find(GraphOf(options), "passed_on").stream, StreamKind::kInterNode);
  EXPECT_EQ(Find(GraphOf(InStages(2)), "received").stream, std::nullopt);
  EXPECT_EQ(StreamOf(Find(GraphOf(InStages(2)), "received")), StreamKind::kCopy);
  options.sequence_parallel = false;
  EXPECT_EQ(Find(GraphOf(options), "passed_on").bytes, kStageBytes);
}

TEST(SharedLayersGraphTest, ASendIsPricedAsTheAllToAllOfTwoRanksThatHoldsItTwice) {
  const TrainingGraph graph = GraphOf(InStages(2));
  const Instruction& send = Find(graph, "received");
  const Profile profile = ProportionalProfile();
  CostBook book(profile, /*model_dim=*/32, /*bytes_per_element=*/2);
  const double pair_s = book.CollectiveS(Collective::kAllToAll, {2, 1}, 2 * kStageBytes);
  EXPECT_GT(pair_s, 0);
  EXPECT_NEAR(*send.time_s, pair_s, 1e-12 * pair_s);
  EXPECT_EQ(CollectiveWork(send),
            (Work{CollectiveKey{.collective = Collective::kAllToAll, .group = {2, 1}}, 2 * kStageBytes}));
  // A graph without times is priced the same from the profile.
  TrainingGraph untimed = graph;
  for (Instruction& one : untimed.instructions) {
    if (IsSend(one)) one.time_s.reset(), one.part_times_s.clear();
  }
  const auto timed = PlanGraph(graph, &profile, {.passes = {.weight_gradients = false, .partition = false}});
  const auto priced = PlanGraph(untimed, &profile, {.passes = {.weight_gradients = false, .partition = false}});
  ASSERT_TRUE(timed.ok() && priced.ok()) << priced.status().message();
  EXPECT_NEAR(priced->lancet.time_s, timed->lancet.time_s, 1e-12 * timed->lancet.time_s);
}

// Parts of a micro-batch are sent while the rest of it is computed.
TEST(SharedLayersGraphTest, ARangeMayEndInASend) {
  ModelGraphOptions options = InStages(2);
  options.batch = 4096;
  options.stage = 0;
  options.expert_parallel = options.ranks_per_node = 4;
  ModelConfig model = SmallModel();
  model.moe_layer.assign(4, true);
  const TrainingGraph graph = GraphOf(options, model);
  const auto answer = PlanGraph(graph, nullptr);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  ASSERT_FALSE(answer->lancet.partitions.empty());
  EXPECT_EQ(answer->lancet.partitions.back().last, "passed_on");
  EXPECT_THAT(answer->lancet.order, Contains("passed_on#1"));
}

TEST(SharedLayersGraphTest, TheStageOfALongestWayIsTheDefault) {
  ModelGraphOptions options = InStages(4);
  options.stages = {0, 1, 2, 1};
  const TrainingGraph longest = GraphOf(options);
  options.stage = 2;
  EXPECT_EQ(longest, GraphOf(options));
}

// ---- All of it.

TEST(SharedLayersGraphTest, ReplicasSumOnAStreamOfTheirOwnBesideExchangesOfLayers) {
  const TrainingGraph graph = GraphOf(kShared);
  ExpectCollective(Find(graph, "gradients.1"), InstructionOp::kReduceScatter, Pass::kBackward,
                   4 * ((4 * kAttention + 2 * kDense + 2 * kVocabulary) / 2 + 2 * kRouter), {4, 2});
  ExpectCollective(Find(graph, "expert_gradients.1"), InstructionOp::kReduceScatter, Pass::kBackward,
                   4 * 2 * 2 * kExpert, {2, 1});
  for (const char* const id : {"gradients.1", "expert_gradients.1", "weights", "expert_weights"}) {
    EXPECT_EQ(Find(graph, id).stream, StreamKind::kCopy) << id;
  }
  // Alone they have the stream of collectives, as always.
  ModelGraphOptions alone = WithCutWeights();
  alone.zero_stage = 1;
  EXPECT_EQ(Find(GraphOf(alone), "gradients.1").stream, std::nullopt);
}

TEST(SharedLayersGraphTest, PlansAreMadeOfAnyOfThem) {
  for (const ModelGraphOptions& options : {kShared, WithWholeRows(), WithSharedExperts(), WithCutWeights()}) {
    for (const int zero_stage : {0, 1, 3}) {
      ModelGraphOptions staged = options;
      staged.zero_stage = zero_stage;
      const TrainingGraph graph = GraphOf(staged);
      EXPECT_TRUE(ValidateTrainingGraph(graph).ok());
      const auto answer = PlanGraph(graph, nullptr);
      ASSERT_TRUE(answer.ok()) << answer.status().message();
      EXPECT_LE(answer->lancet.time_s, answer->lancet.unscheduled_time_s);
      EXPECT_TRUE(BuildStepTasks(graph, answer->lancet).ok());
    }
  }
}

TEST(SharedLayersGraphTest, DegreesThatNoLayoutHasAreRefused) {
  const auto refusal = [](auto change) {
    ModelConfig model = SmallModel();
    ModelGraphOptions options = kShared;
    change(model, options);
    PriceNotes notes;
    const auto graph = TrainingGraphOf(model, options, ProportionalProfile(), notes);
    EXPECT_TRUE(graph.ok() || graph.status().code() == StatusCode::kInvalidInput);
    return graph.ok() ? std::string() : graph.status().message();
  };
  EXPECT_EQ(refusal([](auto&, auto&) {}), "");
  EXPECT_EQ(refusal([](auto&, auto& o) { o.tensor_parallel = 0; }),
            "tensor parallel: found 0, expected a whole number of 1 to 32768");
  EXPECT_EQ(refusal([](auto&, auto& o) { o.context_parallel = -1; }),
            "context parallel: found -1, expected a whole number of 1 to 32768");
  EXPECT_EQ(refusal([](auto&, auto& o) { o.zero_stage = 4; }), "zero: found 4, expected a stage of 0 to 3");
  EXPECT_THAT(refusal([](auto&, auto& o) { o.tensor_parallel = 3; }),
              HasSubstr("layout.tensorParallel: found 3, expected a divisor of the 4 GPUs of a node"));
  EXPECT_THAT(refusal([](auto&, auto& o) { o.context_parallel = 4, o.sequence_length = 36; }),
              HasSubstr("layout.contextParallel: found 4"));
  EXPECT_THAT(refusal([](auto&, auto& o) { o.context_parallel = 16; }), HasSubstr("layout.contextParallel: found 16"));
  EXPECT_EQ(
      refusal([](auto&, auto& o) { o.gpus = 6, o.context_parallel = 1, o.expert_parallel = o.ranks_per_node = 2; }),
      "gpus: found 6, expected whole nodes of the profile's 4 GPUs, or a divisor of them");
  EXPECT_THAT(refusal([](auto& m, auto&) { m.encoder_layers = 2; }), HasSubstr("model: found an encoder"));
  EXPECT_THAT(refusal([](auto& m, auto& o) { m.encoder_layers = 2, o = InStages(2); }),
              HasSubstr("model: found an encoder"));
  EXPECT_EQ(refusal([](auto&, auto& o) { o.pipeline_parallel = 0; }),
            "pipeline parallel: found 0, expected a whole number of 1 to 32768");
  EXPECT_EQ(refusal([](auto&, auto& o) { o.stage = 1; }), "stage: found 1, expected 0: there is one stage");
  EXPECT_EQ(refusal([](auto&, auto& o) { o = InStages(4), o.stage = 4; }), "stage: found 4, expected 0 to 3");
  EXPECT_EQ(refusal([](auto&, auto& o) { o = InStages(4), o.stage = -1; }), "stage: found -1, expected 0 to 3");
  EXPECT_EQ(refusal([](auto&, auto& o) { o = InStages(4), o.pipeline_parallel = 3; }),
            "gpus: found 8, expected a multiple of the 6 of expert and pipeline parallel");
  EXPECT_THAT(refusal([](auto&, auto& o) {
                o = InStages(2), o.stages = {1, 2};
              }),
              HasSubstr("stages: found 3 layers in all, expected the model's 4"));
  EXPECT_THAT(refusal([](auto&, auto& o) {
                o = InStages(2), o.stages = {1, 2, 1};
              }),
              HasSubstr("layout.pipelineParallel: found 2"));
  EXPECT_THAT(refusal([](auto&, auto& o) { o.tensor_parallel = o.context_parallel = 32768; }),
              HasSubstr("degrees: found 4294967296 ranks, expected at most 1073741824"));
  EXPECT_EQ(refusal([](auto&, auto& o) { o.expert_sharding_parallel = 0; }),
            "expert sharding parallel: found 0, expected a whole number of 1 to 32768");
  EXPECT_THAT(
      refusal([](auto&, auto& o) { o.tensor_parallel = 1, o.context_parallel = 1, o.expert_sharding_parallel = 3; }),
      HasSubstr("layout.expertShardingParallel: found 3"));
}

}  // namespace
}  // namespace moeplan::planner
