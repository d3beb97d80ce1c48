// Training graphs of layouts that exchange in other ways than by an all-to-all of rows, a gather of keys and values,
// and whole tensor-parallel exchanges: dispatchers, traded heads, products in less than BF16, pieces beside products.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "models/plan/step_tasks.h"
#include "models/text.h"
#include "planner/lancet/graph/ring_pieces.h"
#include "planner/lancet/model_graph.h"
#include "planner/layout/dispatch_cost.h"
#include "planner/rules/lancet.h"
#include "tests/planner/find_instruction.h"
#include "tests/planner/shared_layouts.h"
#include "tests/planner/small_layouts.h"

namespace moeplan::planner {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// EP 8 over two nodes of four: 128 tokens of a rank, each with two of eight experts.
ModelGraphOptions Through(Dispatcher dispatcher) {
  return {.batch = 2,
          .sequence_length = 64,
          .expert_parallel = 8,
          .ranks_per_node = 4,
          .dispatcher = dispatcher,
          .gpus = 8,
          .gpus_per_node = 4};
}
constexpr double kOwnRows = 128, kRowBytes = 32 * 2;

LancetAnswer PlanOf(const TrainingGraph& graph) {
  const auto answer = PlanGraph(graph, nullptr);
  EXPECT_TRUE(answer.ok()) << answer.status().message();
  if (!answer.ok()) return {};
  EXPECT_LE(answer->lancet.time_s, answer->lancet.unscheduled_time_s);
  EXPECT_TRUE(BuildStepTasks(graph, answer->lancet).ok());
  return answer->lancet;
}

// ---- Dispatchers.

TEST(ExchangedGraphTest, RowsThatTravelOnceToANodeAreFewerAndTakeWhatTheDispatcherTakes) {
  const TrainingGraph plain = GraphOf(Through(Dispatcher::kAllToAll)), once = GraphOf(Through(Dispatcher::kDeepEp));
  const double pair_bytes = 2 * kOwnRows * kRowBytes;
  // A token's two different experts of eight lie on one of two nodes with 3/7.
  const double nodes = 2 - 3.0 / 7;
  for (const char* id : {"layer2.all_to_all1", "layer3.all_to_all2", "layer2.all_to_all1.dx"}) {
    const Pass phase = std::string(id).ends_with(".dx") ? Pass::kBackward : Pass::kForward;
    ExpectCollective(Find(plain, id), InstructionOp::kAllToAll, phase, pair_bytes, {8, 4});
    EXPECT_NEAR(*Find(once, id).bytes, pair_bytes * nodes / 2, 1e-6) << id;
    // Faster than an all-to-all of its bytes by what was measured elsewhere (DispatchFigures::deepep_across), where
    // spreading the rows inside the node is no longer than sending them there.
    EXPECT_NEAR(*Find(once, id).time_s,
                *Find(plain, id).time_s * nodes / 2 / DispatchFigures().deepep_across.over_all_to_all,
                1e-3 * *Find(plain, id).time_s)
        << id;
  }
  EXPECT_GT(PlanOf(once).time_s, 0);
}

TEST(ExchangedGraphTest, AGatherOfAllRowsStandsInFrontOfTheDispatchAndTheirSumBehindTheCombination) {
  const TrainingGraph graph = GraphOf(Through(Dispatcher::kAllGather));
  const double all_bytes = 8 * kOwnRows * kRowBytes;
  ExpectCollective(Find(graph, "layer2.gather"), InstructionOp::kAllGather, Pass::kForward, all_bytes, {8, 4});
  ExpectCollective(Find(graph, "layer2.scatter"), InstructionOp::kReduceScatter, Pass::kForward, all_bytes, {8, 4});
  ExpectCollective(Find(graph, "layer2.gather.dx"), InstructionOp::kReduceScatter, Pass::kBackward, all_bytes, {8, 4});
  ExpectCollective(Find(graph, "layer2.scatter.dx"), InstructionOp::kAllGather, Pass::kBackward, all_bytes, {8, 4});
  EXPECT_FALSE(Has(graph, "layer2.all_to_all1"));
  EXPECT_EQ(StreamOf(Find(graph, "layer2.gather")), StreamKind::kInterNode);
  EXPECT_THAT(Find(graph, "layer2.gate").inputs, Contains("layer2.norm2.y"));
  EXPECT_THAT(Find(graph, "layer2.dispatch").inputs, ElementsAre("layer2.gather.y", "layer2.gate.y"));
  EXPECT_THAT(Find(graph, "layer2.experts").inputs, Contains("layer2.dispatch.y"));
  EXPECT_THAT(Find(graph, "layer2.scatter").inputs, ElementsAre("layer2.combine.y"));
  EXPECT_THAT(Find(graph, "layer2.add2").inputs, Contains("layer2.scatter.y"));
  EXPECT_THAT(Find(graph, "layer2.norm2.dx").inputs, Contains("d(layer2.norm2.y).layer2.gather"));
  // Experts of a part have what its busiest rank has.
  const Instruction& experts = Find(graph, "layer2.experts");
  EXPECT_GT(experts.part_times_s[1], *experts.time_s / 2);
  EXPECT_NEAR(Find(graph, "layer2.gather").part_times_s[1], *Find(graph, "layer2.gather").time_s / 2, 1e-15);
  const LancetAnswer plan = PlanOf(graph);
  EXPECT_FALSE(plan.partitions.empty());
  EXPECT_TRUE(plan.weight_gradients.empty());
}

TEST(ExchangedGraphTest, ExpertsOfOneRankGatherNothing) {
  ModelGraphOptions options = Through(Dispatcher::kAllGather);
  options.expert_parallel = options.ranks_per_node = 1;
  EXPECT_FALSE(Has(GraphOf(options), "layer2.gather"));
}

// ---- What the layers of schedules and frameworks do, too.

TEST(ExchangedGraphTest, AGatesWayBackIsItsLogitsAgainAndTwoProducts) {
  const TrainingGraph graph = GraphOf(kShared);
  const double gate_s = *Find(graph, "layer2.gate").time_s;
  EXPECT_NEAR(*Find(graph, "layer2.gate.dx").time_s, 2 * gate_s, 1e-18);
  EXPECT_NEAR(*Find(graph, "layer2.gate.dw").time_s, gate_s, 1e-18);
  EXPECT_EQ(Find(graph, "layer2.gate.dx").work.front().size, 2 * Find(graph, "layer2.gate").work.front().size);
}

TEST(ExchangedGraphTest, RowsOfTwoTokensAreGatheredSideBySide) {
  ModelGraphOptions options = kShared;
  options.next_tokens = 1;
  const TrainingGraph graph = GraphOf(options);
  ExpectCollective(Find(graph, "next1.join_in"), InstructionOp::kAllGather, Pass::kForward, 2 * kRowsBytes, {2, 2});
  ExpectCollective(Find(graph, "next1.join_in.dx"), InstructionOp::kReduceScatter, Pass::kBackward, 2 * kRowsBytes,
                   {2, 2});
  ExpectCollective(Find(graph, "next1.join_sum"), InstructionOp::kReduceScatter, Pass::kForward, kRowsBytes, {2, 2});
}

TEST(ExchangedGraphTest, GradientsAreAsLargeAsWhatIsExchangedOfThem) {
  const TrainingGraph sharded = GraphOf(WithSharedExperts());
  const double own = Find(sharded, "layer2.dispatch").output_bytes.front();
  // Both parts of an expert return a gradient of each row, and get one gradient of what they made.
  EXPECT_EQ(Find(sharded, "layer2.all_to_all1.dx").output_bytes, std::vector<double>{2 * own});
  EXPECT_EQ(Find(sharded, "layer2.combine.dx").output_bytes.front(), own);
  const TrainingGraph contexts = GraphOf(kShared);
  EXPECT_EQ(Find(contexts, "layer0.contexts.dx").output_bytes,
            std::vector<double>{*Find(contexts, "layer0.contexts").bytes / 2});
}

// ---- Heads for tokens.

TEST(ExchangedGraphTest, ContextsTradeHeadsBeforeAttentionAndBackBehindIt) {
  ModelGraphOptions options = kShared;
  options.context_exchange = ContextExchange::kAllToAll;
  const TrainingGraph graph = GraphOf(options);
  // Each rank has 256 tokens of 2 of 4 query heads of 8 and 1 of 2 key heads; contexts lie on both nodes.
  const double queries = 256 * 16 * 2, keys = 256 * 8 * 2;
  const auto expect = [&](const std::string& id, double bytes) {
    ExpectCollective(Find(graph, id), InstructionOp::kHeadExchange, Pass::kForward, bytes, {2, 1});
    ExpectCollective(Find(graph, id + ".dx"), InstructionOp::kHeadExchange, Pass::kBackward, bytes, {2, 1});
    EXPECT_EQ(Find(graph, id).output_bytes, std::vector<double>{bytes}) << id;
    EXPECT_EQ(Find(graph, id + ".dx").output_bytes, std::vector<double>{bytes}) << id;
    EXPECT_EQ(StreamOf(Find(graph, id)), StreamKind::kIntraNode);
    EXPECT_NEAR(Find(graph, id).part_times_s[1], *Find(graph, id).time_s / 2, 1e-15);
  };
  expect("layer0.contexts_queries", queries);
  expect("layer0.contexts_keys", keys);
  expect("layer0.contexts_values", keys);
  expect("layer0.contexts_out", queries);
  EXPECT_THAT(Find(graph, "layer0.attention").inputs,
              ElementsAre("layer0.contexts_queries.y", "layer0.contexts_keys.y", "layer0.contexts_values.y"));
  EXPECT_THAT(Find(graph, "layer0.out").inputs, Contains("layer0.contexts_out.y"));
  EXPECT_FALSE(Has(graph, "layer0.contexts"));
  // Nothing is exchanged again on the way back, which reads what was kept.
  EXPECT_FALSE(Has(graph, "layer0.contexts_keys.again"));
  EXPECT_THAT(Find(graph, "layer0.attention.dx").inputs, Contains("layer0.contexts_keys.y"));
  EXPECT_THAT(Find(graph, "layer0.rotary.dx").inputs, Contains("d(layer0.rotary.y).layer0.contexts_keys"));
  (void)PlanOf(graph);
}

TEST(ExchangedGraphTest, ARangeMayReachOverTradedHeads) {
  // Both parts of what computes run beside the exchange of the other part.
  TrainingGraph graph;
  graph.instructions = {
      {.id = "norm", .op = InstructionOp::kLayerNorm, .time_s = 1, .inputs = {"tokens"}, .outputs = {"x"}},
      {.id = "qkv", .op = InstructionOp::kMatmul, .time_s = 4, .inputs = {"x"}, .outputs = {"q"}},
      {.id = "heads",
       .op = InstructionOp::kHeadExchange,
       .time_s = 4,
       .inputs = {"q"},
       .outputs = {"h"},
       .bytes = 8,
       .group_size = 2,
       .ranks_per_node = 1},
      {.id = "scores", .op = InstructionOp::kAttention, .time_s = 4, .inputs = {"h"}, .outputs = {"y"}}};
  graph.instructions[2].part_times_s = {4, 2};
  graph.max_parts = 2;
  ASSERT_TRUE(ValidateTrainingGraph(graph).ok());
  const LancetAnswer plan = PlanOf(graph);
  ASSERT_EQ(plan.partitions.size(), 1U);
  EXPECT_EQ(plan.partitions.front().axis, CutAxis::kSamples);
  EXPECT_NEAR(plan.time_s, 9, 1e-9);
  // Weight gradients are for all-to-alls of experts.
  EXPECT_TRUE(plan.weight_gradients.empty());
}

// ---- Less than BF16.

TEST(ExchangedGraphTest, ProductsInLessThanBf16ReadRowsThatWereGatheredInIt) {
  ModelGraphOptions options = kShared;
  options.precision = Precision::kFp8;
  const TrainingGraph low = GraphOf(options), whole = GraphOf(kShared);
  for (const char* gathered : {"layer0.qkv_in", "layer1.up_in", "layer0.qkv_in.again", "layer0.out_sum.dx"}) {
    EXPECT_EQ(*Find(low, gathered).bytes, kRowsBytes / 2) << gathered;
  }
  for (const char* same : {"layer0.out_sum", "layer0.qkv_in.dx", "head_in", "embedding_sum.dx", "layer2.all_to_all1"}) {
    EXPECT_EQ(Find(low, same).bytes, Find(whole, same).bytes) << same;
  }
  // Gradients of what was gathered are of the precision that they are summed in, and gathered ones of the product's.
  EXPECT_EQ(Find(low, "layer0.qkv.dx").output_bytes, std::vector<double>{kRowsBytes});
  EXPECT_EQ(Find(low, "layer0.out_sum.dx").output_bytes, std::vector<double>{kRowsBytes / 2});
  EXPECT_EQ(Find(low, "layer0.qkv_in").output_bytes, std::vector<double>{kRowsBytes / 2});
  // Products are asked for, measured and run in one byte.
  const auto bytes_of = [](const Instruction& one) {
    return std::get<KernelKey>(one.work.front().key).bytes_per_element.value_or(0);
  };
  EXPECT_EQ(bytes_of(Find(low, "layer0.qkv")), 1);
  EXPECT_EQ(bytes_of(Find(low, "head")), 2);
  EXPECT_EQ(Find(low, "head").time_s, Find(whole, "head").time_s);
  EXPECT_NE(Find(low, "layer0.qkv").time_s, Find(whole, "layer0.qkv").time_s);
  (void)PlanOf(low);
}

// ---- Pieces beside products.

TEST(ExchangedGraphTest, AProductMultipliesAPieceWhileTheNextIsGathered) {
  ModelGraphOptions options = kShared;
  options.overlaps_tensor = true;
  const TrainingGraph graph = GraphOf(options), whole = GraphOf(kShared);
  ExpectCollective(Find(graph, "layer0.qkv_in.piece2"), InstructionOp::kAllGather, Pass::kForward, kRowsBytes / 2,
                   {2, 2});
  EXPECT_NEAR(*Find(graph, "layer0.qkv_in.piece1").time_s, *Find(whole, "layer0.qkv_in").time_s / 2, 1e-18);
  EXPECT_NEAR(*Find(graph, "layer0.qkv.piece1").time_s, *Find(whole, "layer0.qkv").time_s / 2, 1e-18);
  EXPECT_EQ(Find(graph, "layer0.qkv.piece1").output_bytes.front(), Find(whole, "layer0.qkv").output_bytes.front() / 2);
  EXPECT_THAT(Find(graph, "layer0.qkv.piece1").inputs, ElementsAre("layer0.qkv_in.y.piece1", "layer0.qkv.w"));
  EXPECT_THAT(Find(graph, "layer0.rotary").inputs, ElementsAre("layer0.qkv.y.piece1", "layer0.qkv.y.piece2"));
  // A piece of the sum begins when that of the product is there.
  EXPECT_THAT(Find(graph, "layer0.out_sum.piece2").inputs, ElementsAre("layer0.out.y.piece2"));
  EXPECT_THAT(Find(graph, "layer0.add1").inputs,
              ElementsAre(testing::_, "layer0.out_sum.y.piece1", "layer0.out_sum.y.piece2"));
  // On the way back the gradient is gathered in pieces, and that of the weights waits for all of them.
  EXPECT_THAT(Find(graph, "layer0.out.dx.piece1").inputs, Contains("d(layer0.out.y).layer0.out_sum.piece1"));
  EXPECT_THAT(Find(graph, "layer0.out.dx.piece1").inputs, Not(Contains("d(layer0.out.y).layer0.out_sum.piece2")));
  EXPECT_THAT(Find(graph, "layer0.out.dw").inputs, Contains("d(layer0.out.y).layer0.out_sum.piece2"));
  EXPECT_FALSE(Has(graph, "layer0.out.dw.piece1"));
  // Nothing is beside the rows that only a weight gradient reads, nor beside those of the vocabulary.
  EXPECT_TRUE(Has(graph, "layer0.qkv_in.again"));
  EXPECT_TRUE(Has(graph, "head_in"));
  EXPECT_TRUE(Has(graph, "embedding_sum"));
  const LancetAnswer in_pieces = PlanOf(graph), at_once = PlanOf(whole);
  EXPECT_LT(in_pieces.unscheduled_time_s, at_once.unscheduled_time_s);
  EXPECT_LE(in_pieces.time_s, in_pieces.unscheduled_time_s);
}

TEST(ExchangedGraphTest, AProductBetweenTwoExchangesPassesPiecesOn) {
  std::vector<Instruction> instructions = {
      {.id = "in", .op = InstructionOp::kAllGather, .time_s = 4, .inputs = {"x"}, .outputs = {"rows"}, .bytes = 8},
      {.id = "product", .op = InstructionOp::kMatmul, .time_s = 6, .inputs = {"rows", "w"}, .outputs = {"y"}},
      {.id = "sum", .op = InstructionOp::kReduceScatter, .time_s = 4, .inputs = {"y"}, .outputs = {"z"}, .bytes = 8},
      {.id = "dw",
       .op = InstructionOp::kMatmul,
       .phase = Pass::kBackward,
       .time_s = 6,
       .inputs = {"rows", "d"},
       .outputs = {"g"},
       .weight_gradient = true},
      {.id = "alone", .op = InstructionOp::kAllGather, .time_s = 4, .inputs = {"z"}, .outputs = {"a"}, .bytes = 8}};
  CutIntoPieces({{"in", 2}, {"sum", 2}, {"alone", 2}}, instructions);
  const TrainingGraph graph = {.instructions = instructions};
  EXPECT_EQ(instructions.size(), 3 * 2 + 2U);
  for (const int piece : {1, 2}) {
    EXPECT_THAT(Find(graph, StrCat("product.piece", piece)).inputs, ElementsAre(StrCat("rows.piece", piece), "w"));
    EXPECT_THAT(Find(graph, StrCat("sum.piece", piece)).inputs, ElementsAre(StrCat("y.piece", piece)));
    EXPECT_EQ(Find(graph, StrCat("product.piece", piece)).time_s, 3);
    EXPECT_EQ(Find(graph, StrCat("sum.piece", piece)).bytes, 4);
  }
  EXPECT_THAT(Find(graph, "dw").inputs, ElementsAre("rows.piece1", "rows.piece2", "d"));
  EXPECT_THAT(Find(graph, "alone").inputs, ElementsAre("z.piece1", "z.piece2"));
}

// Pieces of many layers on many ranks.
TEST(ExchangedGraphTest, MorePiecesThanAGraphHoldsAreRefusedByWhatMakesThem) {
  ModelConfig model = SmallModel();
  model.moe_layer.assign(200, false);
  model.moe_layer.back() = true;
  model.kv_heads = 4;
  ModelGraphOptions options = kShared;
  options.context_parallel = 1;
  options.tensor_parallel = 4;
  EXPECT_GT(GraphOf(options, model).instructions.size(), 200U);
  options.overlaps_tensor = true;
  PriceNotes notes;
  const auto graph = TrainingGraphOf(model, options, ProportionalProfile(), notes);
  ASSERT_FALSE(graph.ok());
  EXPECT_THAT(graph.status().message(), HasSubstr("layout.overlapTensorParallel: found true, with which a graph has"));
}

TEST(ExchangedGraphTest, OnePieceAndRowsThatStayWholeAreAsTheyWere) {
  ModelGraphOptions options = WithWholeRows(), same = options;
  options.overlaps_tensor = true;
  EXPECT_EQ(GraphOf(options), GraphOf(same));
  std::vector<Instruction> instructions = GraphOf(kShared).instructions, before = instructions;
  CutIntoPieces({}, instructions);
  EXPECT_EQ(instructions, before);
}

TEST(ExchangedGraphTest, WhatNoLayoutHasIsRefused) {
  const auto refusal = [](auto change) {
    ModelGraphOptions options = Through(Dispatcher::kAllToAll);
    change(options);
    PriceNotes notes;
    const auto graph = TrainingGraphOf(SmallModel(), options, ProportionalProfile(), notes);
    EXPECT_TRUE(graph.ok() || graph.status().code() == StatusCode::kInvalidInput);
    return graph.ok() ? std::string() : graph.status().message();
  };
  EXPECT_THAT(refusal([](auto& o) { o.transport = Transport::kUccl; }), HasSubstr("layout.transport: found UCCL"));
  EXPECT_THAT(refusal([](auto& o) {
                o.dispatcher = Dispatcher::kDeepEp;
                o.expert_parallel = o.ranks_per_node = 4, o.expert_sharding_parallel = 2;
              }),
              HasSubstr("layout.expertShardingParallel"));
}

}  // namespace
}  // namespace moeplan::planner
