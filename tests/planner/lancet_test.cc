#include "planner/rules/lancet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "models/text.h"
#include "planner/lancet/axes.h"
#include "planner/lancet/cut_ranges.h"
#include "planner/lancet/model_graph.h"
#include "planner/lancet/paper_plan.h"
#include "planner/lancet/schedule.h"
#include "proto/convert/plan.h"
#include "proto/convert/training_graph.h"
#include "proto/json.h"
#include "tests/planner/by_hand.h"
#include "tests/planner/lancet_checker.h"
#include "tests/planner/lancet_texts.h"
#include "tests/test_seed.h"

namespace moeplan::planner {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kRounding = 1e-9;

// ---- Ranges.

TEST(LancetTest, ALayerIsCutAndPipelined) {
  // Two parts of 2 s each: h 0-4; out 2-4 and 4-6; ffn 4-6 and 6-8; back 6-8 and 8-10; sum 8-10 and 10-12. Uncut: 20.
  const json graph = Layer(2);
  const json answer = AnswerOf(graph).at("rules").at("lancet");
  EXPECT_EQ(answer.at("unscheduledTimeS"), 20);
  EXPECT_EQ(answer.at("timeS"), 12);
  ASSERT_EQ(answer.at("partitions").size(), 1u);
  EXPECT_EQ(answer.at("partitions")[0], json({{"first", "h"},
                                              {"last", "sum"},
                                              {"parts", 2},
                                              {"timeS", 12.0},
                                              {"axis", "SAMPLES"},
                                              {"split", {"embed'"}},
                                              {"joined", json::array()}}));
  EXPECT_EQ(answer.at("order"), json({"embed", "h#1", "gate#1", "send#1", "h#2", "gate#2", "send#2", "out#1", "out#2",
                                      "ffn#1", "ffn#2", "back#1", "back#2", "sum#1", "sum#2"}));
  EXPECT_EQ(LancetChecker(graph).Complaint(AnswerOf(graph)), "");
}

TEST(LancetTest, AGateThatLooksAtTheWholeBatchKeepsTheCutBehindIt) {
  // Then h and the gate are not cut: 4, and behind them out 4-6 and 6-8, ffn 6-8 and 8-10, back 8-10, 10-12, sum to 14.
  json graph = Layer(2);
  graph["instructions"][2]["gate"] = "BATCH_PRIORITIZED";
  const json answer = AnswerOf(graph).at("rules").at("lancet");
  EXPECT_EQ(answer.at("timeS"), 14);
  EXPECT_EQ(answer.at("partitions")[0].at("first"), "send");
  graph["instructions"][2]["gate"] = "EXPERT_CHOICE";
  EXPECT_EQ(AnswerOf(graph).at("rules").at("lancet").at("timeS"), 14);
  graph["instructions"][2]["gate"] = "SWITCH";
  EXPECT_EQ(AnswerOf(graph).at("rules").at("lancet").at("timeS"), 12);
}

TEST(LancetTest, OnlyExpertsAreCutAlongTheCapacityWhenNothingElseCanBe) {
  // embed makes what `out` sends, and sum is OTHER: of out, ffn, back in two, out 0-2, 2-4; ffn 2-4, 4-6; back 4-6,
  // 6-8.
  json graph = Graph({Step("embed", "OTHER", 1, {}), Evenly(Step("out", "ALL_TO_ALL", 4, {"embed'"})),
                      Step("ffn", "EXPERT", 4, {"out'", "we"}), Evenly(Step("back", "ALL_TO_ALL", 4, {"ffn'"})),
                      Step("sum", "OTHER", 1, {"back'"})},
                     2);
  const json answer = AnswerOf(graph).at("rules").at("lancet");
  EXPECT_EQ(answer.at("partitions")[0], json({{"first", "out"},
                                              {"last", "back"},
                                              {"parts", 2},
                                              {"timeS", 8.0},
                                              {"axis", "CAPACITY"},
                                              {"split", {"embed'"}},
                                              {"joined", json::array()}}));
  EXPECT_EQ(answer.at("timeS"), 10);
  EXPECT_EQ(answer.at("unscheduledTimeS"), 14);
}

TEST(LancetTest, ShortPartsThatTakeLongerAreNotCut) {
  json graph = Layer(8);
  for (json& one : graph["instructions"]) {
    if (one["op"] == "OTHER") continue;
    one["partTimesS"] = std::vector<double>(8, one["timeS"].get<double>());
  }
  const json answer = AnswerOf(graph).at("rules").at("lancet");
  EXPECT_THAT(answer.at("partitions"), IsEmpty());
  EXPECT_EQ(answer.at("timeS"), answer.at("unscheduledTimeS"));
}

TEST(LancetTest, GroupsAndTheLongestRangeBoundTheCuts) {
  json graph = Layer(2);
  graph["maxRangeS"] = 12;
  LancetChecker checker(graph);
  const json limited = AnswerOf(graph);
  EXPECT_EQ(checker.Complaint(limited), "");
  EXPECT_GT(limited.at("rules").at("lancet").at("timeS"), 12);
  graph["maxRangeS"] = 0;
  graph["groupS"] = 100;  // All is one group, with what cannot be cut.
  EXPECT_THAT(AnswerOf(graph).at("rules").at("lancet").at("partitions"), IsEmpty());
}

TEST(LancetTest, GroupsCloseWhenTheirTimesAddUp) {
  // 1 + 2 reaches 3; 4 does; 1 does not and is the last of its run.
  TimedGraph graph = {.max_parts = 2, .group_s = 3};
  for (const double time_s : {1.0, 2.0, 4.0, 1.0, 9.0, 0.5}) graph.instructions.push_back({.part_s = {time_s}});
  graph.instructions[4].phase = Pass::kBackward;
  EXPECT_EQ(GroupBorders(graph), (std::vector<std::vector<int>>{{0, 2, 3, 4}, {5, 6}}));
}

TEST(LancetTest, AGateThatLooksAtTheWholeBatchIsAGroupByItself) {
  // 1, and the gate although 1 + 1 is below 4; 2 + 3 reach 4; 1 is the last. Of another gate 1 + 1 + 2 do, and 3 + 1.
  TimedGraph graph = {.max_parts = 2, .group_s = 4};
  for (const double time_s : {1.0, 1.0, 2.0, 3.0, 1.0}) graph.instructions.push_back({.part_s = {time_s}});
  graph.instructions[1].op = InstructionOp::kGate;
  EXPECT_EQ(GroupBorders(graph), (std::vector<std::vector<int>>{{0, 3, 5}}));
  graph.instructions[1].whole_batch_gate = true;
  EXPECT_EQ(GroupBorders(graph), (std::vector<std::vector<int>>{{0, 1, 2, 4, 5}}));
}

TEST(LancetTest, NoGroupEndsInsideALayer) {
  // 1 + 2 reach 3, but 2 and 3 are of one layer; 1 is the last.
  TimedGraph graph = {.max_parts = 2, .group_s = 3};
  for (const double time_s : {1.0, 2.0, 0.5, 3.0, 1.0}) graph.instructions.push_back({.part_s = {time_s}});
  graph.instructions[2].inside_layer = true;
  EXPECT_EQ(GroupBorders(graph), (std::vector<std::vector<int>>{{0, 3, 4, 5}}));
  // A gate that stays whole does not keep what follows its layer.
  graph.instructions[1].op = InstructionOp::kGate;
  graph.instructions[1].whole_batch_gate = true;
  graph.group_s = 4;
  EXPECT_EQ(GroupBorders(graph), (std::vector<std::vector<int>>{{0, 1, 3, 5}}));
}

TEST(LancetTest, ALayerIsCutAsAWhole) {
  // Cut from the dispatch on, parts of 2 s each: out 4-6 and 6-8; ffn 6-8 and 8-10; back 8-10 and 10-12; sum 10-14. The
  // gate before it cannot be cut, so neither can its layer.
  json graph = Layer(2);
  graph["instructions"][2]["gate"] = "BATCH_PRIORITIZED";
  EXPECT_EQ(AnswerOf(graph).at("rules").at("lancet").at("timeS"), 14);
  for (const int i : {2, 7}) graph["instructions"][i]["layer"] = "moe";
  EXPECT_EQ(AnswerOf(graph).at("rules").at("lancet").at("timeS"), 20);
  EXPECT_EQ(LancetChecker(graph).Complaint(AnswerOf(graph)), "");
  graph["instructions"][2]["gate"] = "TOP_K";
  EXPECT_EQ(AnswerOf(graph).at("rules").at("lancet").at("timeS"), 12);
}

TEST(LancetTest, LayersThatAreNoneAreRefused) {
  json graph = ThereAndBack(2);
  graph["instructions"][3]["layer"] = "moe";
  EXPECT_EQ(
      Refusal(graph),
      "instructions[3] (fetch.dx).layer: found moe, expected none in phase BACKWARD, which is cut where forward is");
  graph = ThereAndBack(2);
  graph["instructions"].push_back(Step("more", "OTHER", 1, {}));
  for (const int i : {2, 7}) graph["instructions"][i]["layer"] = "moe";
  EXPECT_EQ(
      Refusal(graph),
      "instructions[3] (fetch.dx).phase: found BACKWARD between instructions of one layer, expected layers within the "
      "forward pass");
}

// ---- Axes, one instruction behind what it reads.

// Whether `op` may follow in one range what makes samples, and what makes irregular slots.
std::pair<bool, bool> Follows(InstructionOp op, bool whole_batch_gate = false) {
  const auto extend = [&](int read) {
    TimedGraph graph;  // 0 outside; 1 a matrix product, 2 its dispatch.
    graph.instructions = {{.op = InstructionOp::kOther},
                          {.op = InstructionOp::kMatmul, .producers = {0}},
                          {.op = InstructionOp::kDispatch, .producers = {1}},
                          {.op = op, .whole_batch_gate = whole_batch_gate, .producers = {read}}};
    RangeAxes axes(graph);
    axes.Start(1);
    EXPECT_TRUE(axes.Extend());
    EXPECT_TRUE(axes.Extend());
    return axes.Extend();
  };
  return {extend(1), extend(2)};
}

TEST(RangeAxesTest, EachOpTakesItsAxis) {
  using Op = InstructionOp;
  const std::pair<bool, bool> samples(true, false), irregular(false, true), none(false, false);
  for (const Op op :
       {Op::kMatmul, Op::kElementwise, Op::kLayerNorm, Op::kSoftmax, Op::kAttention, Op::kGate, Op::kDispatch,
        Op::kAllGather, Op::kReduceScatter, Op::kAllReduce, Op::kSend, Op::kHeadExchange}) {
    EXPECT_EQ(Follows(op), samples) << Name(op);
  }
  for (const Op op : {Op::kAllToAll, Op::kExpert, Op::kCombine}) EXPECT_EQ(Follows(op), irregular) << Name(op);
  EXPECT_EQ(Follows(Op::kOther), none);
  EXPECT_EQ(Follows(Op::kGate, /*whole_batch_gate=*/true), none);
}

TEST(RangeAxesTest, WhatComesFromOutside) {
  const auto first = [](InstructionOp made_by, InstructionOp op) {
    TimedGraph graph;
    graph.instructions = {{.op = made_by}, {.op = op, .producers = {0}}};
    RangeAxes axes(graph);
    axes.Start(1);
    return axes.Extend();
  };
  using Op = InstructionOp;
  EXPECT_TRUE(first(Op::kOther, Op::kMatmul));
  EXPECT_TRUE(first(Op::kGate, Op::kDispatch));
  EXPECT_FALSE(first(Op::kAllToAll, Op::kCombine));
  EXPECT_FALSE(first(Op::kDispatch, Op::kMatmul));
  EXPECT_TRUE(first(Op::kDispatch, Op::kAllToAll));  // Along the capacity.
  TimedGraph graph;
  graph.instructions = {{.op = Op::kMatmul}};  // Of weights alone: nothing to cut.
  RangeAxes axes(graph);
  axes.Start(0);
  EXPECT_FALSE(axes.Extend());
}

TEST(RangeAxesTest, ARangeOfExpertsCannotGrowBeyondThem) {
  TimedGraph graph;
  graph.instructions = {{.op = InstructionOp::kDispatch},
                        {.op = InstructionOp::kAllToAll, .producers = {0}},
                        {.op = InstructionOp::kExpert, .producers = {1}},
                        {.op = InstructionOp::kCombine, .producers = {2}}};
  RangeAxes axes(graph);
  axes.Start(1);
  EXPECT_TRUE(axes.Extend());
  EXPECT_TRUE(axes.Extend());
  EXPECT_FALSE(axes.Extend());
}

// ---- Weight gradients.

json WeightGradient(json step) {
  step["weightGradient"] = true;
  return step;
}

TEST(LancetTest, WeightGradientsMoveBehindTheAllToAllTheyCover) {
  // dx 0-2, a 2-8, y from 8 to 10; dw of 5 would run from 2 to 7 before y, at 7 anyway: the given order puts it last.
  const json graph =
      Graph({Step("dx", "MATMUL", 2, {"g"}, "BACKWARD"), Step("a", "ALL_TO_ALL", 6, {"dx'"}, "BACKWARD"),
             Step("y", "MATMUL", 2, {"a'"}, "BACKWARD"), WeightGradient(Step("dw", "MATMUL", 5, {"g"}, "BACKWARD"))});
  const json whole = AnswerOf(graph), answer = whole.at("rules").at("lancet");
  EXPECT_EQ(answer.at("unscheduledTimeS"), 15);
  EXPECT_EQ(answer.at("timeS"), 10);
  EXPECT_EQ(answer.at("weightGradients"), json::parse(R"([{"instruction": "dw", "allToAll": "a"}])"));
  EXPECT_EQ(answer.at("order"), json({"dx", "a", "dw", "y"}));
  EXPECT_THAT(whole.at("explanation").get<std::string>(), HasSubstr("can cover 5000 ms"));
}

TEST(LancetTest, AWeightGradientOfNoTimeThatWaitsMovesOutOfTheWay) {
  // a 0-3; dw needs it, and y in turn would start behind dw at 3: 3 + 4, then b 7-9. Behind b, dw keeps nobody waiting:
  // y 0-4, b 4-6.
  const json graph =
      Graph({Step("a", "ALL_TO_ALL", 3, {"g"}, "BACKWARD"), WeightGradient(Step("dw", "MATMUL", 0, {"a'"}, "BACKWARD")),
             Step("y", "MATMUL", 4, {"g"}, "BACKWARD"), Step("b", "ALL_TO_ALL", 2, {"y'"}, "BACKWARD")});
  const json answer = AnswerOf(graph).at("rules").at("lancet");
  EXPECT_EQ(answer.at("unscheduledTimeS"), 9);
  EXPECT_EQ(answer.at("timeS"), 6);
  EXPECT_EQ(answer.at("weightGradients"), json::parse(R"([{"instruction": "dw", "allToAll": "b"}])"));
}

TEST(LancetTest, WhatAWeightGradientNeedsAndFeedsMovesWithIt) {
  // dw needs `pre`, given behind the all-to-all, and feeds `update`, given before it.
  const json late =
      Graph({Step("a", "ALL_TO_ALL", 6, {}, "BACKWARD"), Step("y", "MATMUL", 2, {"a'"}, "BACKWARD"),
             Step("pre", "MATMUL", 1, {}, "BACKWARD"), WeightGradient(Step("dw", "MATMUL", 4, {"pre'"}, "BACKWARD"))});
  EXPECT_EQ(AnswerOf(late).at("rules").at("lancet").at("order"), json({"a", "pre", "dw", "y"}));
  EXPECT_EQ(AnswerOf(late).at("rules").at("lancet").at("timeS"), 8);
  const json early =
      Graph({Step("x", "MATMUL", 1, {}, "BACKWARD"), WeightGradient(Step("dw", "MATMUL", 4, {"x'"}, "BACKWARD")),
             Step("update", "OTHER", 1, {"dw'"}, "BACKWARD"), Step("a", "ALL_TO_ALL", 6, {"x'"}, "BACKWARD"),
             Step("y", "MATMUL", 2, {"a'"}, "BACKWARD")});
  EXPECT_EQ(AnswerOf(early).at("rules").at("lancet").at("order"), json({"x", "a", "dw", "update", "y"}));
  EXPECT_EQ(AnswerOf(early).at("rules").at("lancet").at("timeS"), 9);
}

TEST(LancetTest, WhyNoWeightGradientWaitsIsSaid) {
  // Each all-to-all reads one gradient and may cover the other; in the given order a covers v, and b, the last,
  // nothing.
  const json graph =
      Graph({WeightGradient(Step("u", "MATMUL", 4, {}, "BACKWARD")), Step("a", "ALL_TO_ALL", 4, {"u'"}, "BACKWARD"),
             WeightGradient(Step("v", "MATMUL", 4, {}, "BACKWARD")), Step("b", "ALL_TO_ALL", 4, {"v'"}, "BACKWARD")});
  const json answer = AnswerOf(graph);
  EXPECT_EQ(answer.at("rules").at("lancet").at("weightGradients"), json::array());
  EXPECT_THAT(answer.at("explanation").get<std::string>(),
              HasSubstr("No weight gradient waits for 2 backward all-to-alls of 8000 ms: assigning them can "
                        "cover 8000 ms, but no assignment that was tried lets the step end earlier. "));
}

// ---- Passes switched off, and the paper's own plan.

// The layer, then what the weight gradient can cover: neither reads what the other makes, but streams run in order.
json LayerAndBack() {
  json graph = Layer(2);
  graph["instructions"].insert(
      graph["instructions"].end(),
      {Step("dx", "MATMUL", 2, {"g"}, "BACKWARD"), Step("a", "ALL_TO_ALL", 6, {"dx'"}, "BACKWARD"),
       Step("y", "MATMUL", 2, {"a'"}, "BACKWARD"), WeightGradient(Step("dw", "MATMUL", 5, {"g"}, "BACKWARD"))});
  return graph;
}

TEST(LancetTest, APassThatIsOffChangesNothing) {
  // 20 s forward, 12 where the layer is cut; 15 s back, 10 where dw runs beside a.
  const json graph = LayerAndBack();
  const auto time_s = [&](const LancetPasses& passes) {
    const json answer = AnswerOf(graph, {.passes = passes});
    EXPECT_EQ(LancetChecker(graph).Complaint(answer), "");
    const json& lancet = answer.at("rules").at("lancet");
    EXPECT_EQ(lancet.at("unscheduledTimeS"), 35);
    EXPECT_EQ(lancet.at("partitions").empty(), !passes.partition);
    EXPECT_EQ(lancet.at("weightGradients").empty(), !passes.weight_gradients);
    const std::string explanation = answer.at("explanation");
    EXPECT_EQ(explanation.find("No range of the forward pass is cut, as was asked.") == std::string::npos,
              passes.partition);
    EXPECT_EQ(explanation.find("Weight gradients keep their places, as was asked.") == std::string::npos,
              passes.weight_gradients);
    return lancet.at("timeS").get<double>();
  };
  EXPECT_EQ(time_s({}), 22);
  EXPECT_EQ(time_s({.weight_gradients = false}), 27);
  EXPECT_EQ(time_s({.partition = false}), 30);
  EXPECT_EQ(time_s({.weight_gradients = false, .partition = false}), 35);
}

TEST(PaperPlanTest, GroupsAreAFifthOfAStretchAndRangesOneStretch) {
  EXPECT_EQ(LimitsOfPaper(/*forward_s=*/60, /*moe_layers=*/2).group_s, 6);
  EXPECT_EQ(LimitsOfPaper(/*forward_s=*/60, /*moe_layers=*/2).max_range_s, 30);
  // 20 s forward, one layer of two all-to-alls; what comes back does not count.
  const TimedGraph timed = Timed(LayerAndBack());
  EXPECT_EQ(WithLimitsOfPaper(timed).group_s, 4);
  EXPECT_EQ(WithLimitsOfPaper(timed).max_range_s, 20);
  TimedGraph limited = timed;
  limited.group_s = 1;
  EXPECT_EQ(WithLimitsOfPaper(limited).group_s, 1);
  EXPECT_EQ(WithLimitsOfPaper(limited).max_range_s, 20);
}

TEST(PaperPlanTest, CutsGroupsAndPlacesGreedily) {
  // Groups of 4 s: embed and h, of which embed cannot be cut; gate, send and out; ffn; back; sum. Behind h at 4: out
  // 4-6, 6-8; ffn 6-8, 8-10; back 8-10, 10-12; sum 10-12, 12-14, where 12 is the best. Then 10 for the way back.
  const TimedGraph graph = Timed(LayerAndBack());
  const PaperPlan both = PlanOfPaper(graph);
  EXPECT_EQ(both.time_s, 24);
  ASSERT_EQ(both.ranges.size(), 1u);
  EXPECT_EQ(both.ranges.front(), (CutRange{.first = 2, .last = 7, .parts = 2, .time_s = 10}));
  EXPECT_THAT(both.places, ::testing::ElementsAre(GradientPlace{.gradient = 11, .exchange = 9}));
  EXPECT_EQ(PlanOfPaper(graph, {.weight_gradients = false}).time_s, 29);
  EXPECT_EQ(PlanOfPaper(graph, {.partition = false}).time_s, 30);
}

TEST(PaperPlanTest, MayEndLaterThanTheGivenOrder) {
  // The greedy puts dw right behind a, where y waits for it: dw 0-9, y 9-10, b 10-14. Given: y 0-1, b 4-8, dw 1-10.
  const json graph =
      Graph({Step("a", "ALL_TO_ALL", 4, {"g"}, "BACKWARD"), Step("y", "MATMUL", 1, {"g"}, "BACKWARD"),
             Step("b", "ALL_TO_ALL", 4, {"y'"}, "BACKWARD"), WeightGradient(Step("dw", "MATMUL", 9, {}, "BACKWARD"))});
  EXPECT_EQ(PlanOfPaper(Timed(graph)).time_s, 14);
  EXPECT_EQ(AnswerOf(graph).at("rules").at("lancet").at("timeS"), 10);
}

TEST(PaperPlanTest, PlacesThatNoOrderSatisfiesAreLeftOut) {
  // a needs u and b needs v. The greedy covers a with v and b with u: u behind b, b behind v, v behind a, a behind u.
  const json graph =
      Graph({WeightGradient(Step("u", "MATMUL", 4, {}, "BACKWARD")), Step("a", "ALL_TO_ALL", 4, {"u'"}, "BACKWARD"),
             WeightGradient(Step("v", "MATMUL", 4, {}, "BACKWARD")), Step("b", "ALL_TO_ALL", 4, {"v'"}, "BACKWARD")});
  const PaperPlan plan = PlanOfPaper(Timed(graph));
  EXPECT_THAT(plan.places, IsEmpty());
  EXPECT_EQ(plan.time_s, 12);  // u 0-4, a 4-8 beside v, b 8-12.
}

// ---- Costs.

Profile TwoRanks() {
  Profile profile = {.name = "two", .version = 3, .cluster = {.nodes = 1, .gpus_per_node = 2}};
  profile.collectives = {Line(Over(Collective::kAllToAll, {2, 2}), 1.0, 0.5)};
  return profile;
}

TEST(LancetTest, AllToAllsCostTheProfilesTimeOfTheirShareOfTheBytes) {
  json graph = Layer(2);
  for (const int i : {4, 6}) {
    json& exchange = graph["instructions"][i];
    exchange.erase("timeS");
    exchange.erase("partTimesS");
    exchange["bytes"] = 8;
    exchange["groupSize"] = 2;
    exchange["ranksPerNode"] = 2;
  }
  const Profile profile = TwoRanks();
  const auto answer = PlanOf(graph, &profile);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  // Uncut 1 + 0.5·8 = 5 each, halves 1 + 0.5·4 = 3: 4 + 5 + 4 + 5 + 4 against h to 4; out 2-5, 5-8; ffn 5-7, 8-10; back
  // 8-11 (behind out), 11-14; sum 11-13, 14-16.
  EXPECT_EQ(answer->lancet.unscheduled_time_s, 22);
  EXPECT_EQ(answer->lancet.time_s, 16);
  EXPECT_EQ(answer->profile_name, "two");
  EXPECT_EQ(answer->profile_version, 3);
}

TEST(LancetTest, AMissingTimeIsNamedWithWhatWouldGiveIt) {
  json graph = Layer(2);
  graph["instructions"][4].erase("partTimesS");
  EXPECT_THAT(Refusal(graph),
              AllOf(HasSubstr("instructions[4] (out): found neither partTimesS of 2 parts nor a profile"),
                    HasSubstr("or maxParts at most 1")));
  graph["instructions"][4].erase("timeS");
  EXPECT_THAT(Refusal(graph), HasSubstr("instructions[4] (out): found neither its timeS nor a profile"));
  const Profile profile = TwoRanks();
  EXPECT_THAT(Refusal(graph, &profile), HasSubstr("instructions[4] (out).bytes: found nothing"));
  graph["instructions"][4].update({{"bytes", 8}, {"groupSize", 4}, {"ranksPerNode", 2}});
  EXPECT_THAT(Refusal(graph, &profile), AllOf(HasSubstr("the profile lacks ALL_TO_ALL groupSize 4 ranksPerNode 2"),
                                              HasSubstr("moeplan calibrate")));
  graph = Layer(1);
  graph["instructions"][4].erase("partTimesS");
  EXPECT_TRUE(PlanOf(graph).ok());  // Nothing is cut.
}

// ---- Refusals.

TEST(LancetTest, WrongGraphsAreRefusedByInstruction) {
  const auto with = [](const std::string& pointer, const json& value) {
    json graph = Layer(2);
    graph[json::json_pointer(pointer)] = value;
    return Refusal(graph);
  };
  EXPECT_EQ(with("/instructions", json::array()), "instructions: found none, expected at least one");
  EXPECT_EQ(with("/maxParts", 0), "maxParts: found 0, expected a whole number of 1 to 64");
  EXPECT_EQ(with("/maxParts", 65), "maxParts: found 65, expected a whole number of 1 to 64");
  EXPECT_EQ(with("/groupS", -1), "groupS: found -1, expected a finite number of at least 0");
  EXPECT_EQ(with("/maxRangeS", -1), "maxRangeS: found -1, expected a finite number of at least 0");
  EXPECT_EQ(with("/instructions/3/id", "h"),
            "instructions[3] (h).id: found an id that instructions[1] (h) has, expected one of its own");
  EXPECT_EQ(with("/instructions/3/id", "h#2"),
            "instructions[3] (h#2).id: found the name of a part of instructions[1] (h), expected another id");
  EXPECT_EQ(with("/instructions/3/id", ""), "instructions[3] ().id: found 0 bytes, expected a name of 1 to 256");
  EXPECT_EQ(with("/instructions/3/outputs", {"h'"}),
            "instructions[3] (send).outputs: found 'h'', which instructions[1] (h) produces, expected tensors with one "
            "producer");
  EXPECT_EQ(with("/instructions/3/inputs", {"send'"}),
            "instructions[3] (send).inputs: found its own output 'send'', expected no cycle");
  EXPECT_EQ(with("/instructions/3/inputs", {"ffn'"}),
            "instructions[3] (send).inputs: found 'ffn'' of instructions[5] (ffn), which needs it in turn, expected no "
            "cycle");
  EXPECT_EQ(with("/instructions/0/inputs", {"sum'", "tokens"}).substr(0, 46),
            "instructions[0] (embed).inputs: found 'sum'' o");
  json late = Layer(2);
  late["instructions"].push_back(Step("tail", "OTHER", 1, {}));
  late["instructions"][2]["inputs"] = {"h'", "tail'"};
  EXPECT_EQ(
      Refusal(late),
      "instructions[2] (gate).inputs: found 'tail'', which only instructions[8] (tail) produces, expected an order "
      "in which producers come first");
  EXPECT_THAT(with("/instructions/3/timeS", -1),
              HasSubstr("instructions[3] (send).timeS: found -1, expected a finite"));
  EXPECT_THAT(with("/instructions/4/partTimesS/1", -2), HasSubstr("instructions[4] (out).partTimesS[1]: found -2"));
  EXPECT_THAT(with("/instructions/4/bytes", 0), HasSubstr("instructions[4] (out).bytes: found 0"));
  EXPECT_THAT(with("/instructions/4/groupSize", 0), HasSubstr("instructions[4] (out).groupSize: found 0"));
  EXPECT_THAT(with("/instructions/4/weightGradient", true), HasSubstr("instructions[4] (out).weightGradient"));
  EXPECT_THAT(with("/instructions/3/op", "MATMULL"), HasSubstr("instructions[3].op: found the string \"MATMULL\""));
  EXPECT_THAT(with("/instructions/3/weight", 1), HasSubstr("instructions[3].weight: found an unknown field"));
  json timeless = Layer(2);
  timeless["instructions"][1].erase("timeS");
  EXPECT_THAT(Refusal(timeless), HasSubstr("instructions[1] (h).timeS: found nothing"));
  json opless = Layer(2);
  opless["instructions"][1].erase("op");
  EXPECT_THAT(Refusal(opless), HasSubstr("instructions[1].op: found nothing, expected one of MATMUL"));
  json many = Graph({});
  for (int i = 0; i <= kMostInstructions; ++i)
    many["instructions"].push_back(Step("i" + std::to_string(i), "OTHER", 1, {}));
  EXPECT_EQ(Refusal(many),
            StrCat("instructions: found ", kMostInstructions + 1, ", expected at most ", kMostInstructions));
}

// ---- Random graphs.

int AnyInt(std::mt19937_64& engine, int low, int high) { return std::uniform_int_distribution(low, high)(engine); }

double AnyTimeS(std::mt19937_64& engine) {
  return AnyInt(engine, 0, 2) > 0 ? AnyInt(engine, 0, 6) : AnyInt(engine, 1, 600) / 100.0;
}

json AnyStep(std::mt19937_64& engine, const std::string& id, const std::string& op, std::vector<std::string> inputs,
             const std::string& phase, int max_parts) {
  json step = Step(id, op, AnyTimeS(engine), std::move(inputs), phase);
  if (op != "ALL_TO_ALL" && AnyInt(engine, 0, 1)) return step;
  std::vector<double> part_s;
  for (int k = 1; k <= max_parts; ++k) {
    part_s.push_back(k == 1
                         ? step["timeS"].get<double>()
                         : step["timeS"].get<double>() / k * AnyInt(engine, 8, 14) / 10 + AnyInt(engine, 0, 1) / 4.0);
  }
  step["partTimesS"] = part_s;
  return step;
}

std::string AnyOp(std::mt19937_64& engine) {
  static const std::vector<std::string> kOps = {"MATMUL",   "ELEMENTWISE", "ATTENTION", "GATE",
                                                "DISPATCH", "ALL_TO_ALL",  "EXPERT",    "COMBINE",
                                                "OTHER",    "ALL_TO_ALL",  "EXPERT"};
  return kOps[AnyInt(engine, 0, static_cast<int>(kOps.size()) - 1)];
}

// Forward a chain of any ops, mostly those that may follow; backward anything.
json AnyGraph(std::mt19937_64& engine, int forward, int backward) {
  const int max_parts = AnyInt(engine, 1, 3);
  json graph = Graph({}, max_parts);
  std::vector<std::string> made;
  const auto any_inputs = [&](bool chained) {
    std::vector<std::string> inputs = {"w"};
    if (chained && !made.empty()) inputs.push_back(made.back());
    for (int i = AnyInt(engine, 0, 2); i > 1 && !made.empty(); --i) {
      inputs.push_back(made[AnyInt(engine, 0, static_cast<int>(made.size()) - 1)]);
    }
    return inputs;
  };
  static const std::vector<std::string> kLayer = {"OTHER",      "MATMUL", "GATE",       "DISPATCH",
                                                  "ALL_TO_ALL", "EXPERT", "ALL_TO_ALL", "COMBINE"};
  const int from = AnyInt(engine, 0, 7);
  const int layer_first = AnyInt(engine, 0, 3 * forward);  // In two of three graphs there is none.
  const int layer_last = layer_first + AnyInt(engine, 1, 6);
  for (int i = 0; i < forward; ++i) {
    const std::string op = AnyInt(engine, 0, 4) > 0 ? kLayer[(from + i) % 8] : AnyOp(engine);
    json step =
        AnyStep(engine, "f" + std::to_string(i), op, any_inputs(AnyInt(engine, 0, 5) > 0), "FORWARD", max_parts);
    if (op == "GATE") step["gate"] = AnyInt(engine, 0, 3) ? "SWITCH" : "BATCH_PRIORITIZED";
    if (i >= layer_first && i <= layer_last && AnyInt(engine, 0, 3) > 0) step["layer"] = "moe";
    graph["instructions"].push_back(step);
    made.push_back(step["outputs"][0]);
  }
  const int ways_back = AnyInt(engine, 0, 3);  // Of four backward instructions, as a rule; 0: the paper's graphs.
  for (int i = 0; i < backward; ++i) {
    const bool gradient = AnyInt(engine, 0, 2) == 0;
    const std::string op = gradient ? "MATMUL" : AnyInt(engine, 0, 1) ? "ALL_TO_ALL" : "MATMUL";
    json step =
        AnyStep(engine, "b" + std::to_string(i), op, any_inputs(AnyInt(engine, 0, 2) > 0), "BACKWARD", max_parts);
    step["weightGradient"] = gradient;
    if (forward > 0 && AnyInt(engine, 0, 3) < ways_back) {
      step["forward"] = "f" + std::to_string(AnyInt(engine, 0, forward - 1));
    }
    graph["instructions"].push_back(step);
    // Of a weight gradient nothing in the step is made, as a rule.
    if (!gradient || AnyInt(engine, 0, 4) == 0) made.push_back(step["outputs"][0]);
  }
  if (AnyInt(engine, 0, 3) == 0) graph["groupS"] = AnyInt(engine, 1, 8);
  if (AnyInt(engine, 0, 3) == 0) graph["maxRangeS"] = AnyInt(engine, 4, 20);
  return graph;
}

// A step of `layers` layers as a framework runs it, every one with experts: a few instructions before them, others
// beside some of them, and some whose results are read in the next layer only. Then back, with the gradient of what
// came in and, right behind it, that of the weights; cut where the forward pass is, or not.
class StepOfLayers {
 public:
  StepOfLayers(std::mt19937_64& engine, int layers)
      : engine_(engine),
        max_parts_(AnyInt(engine, 2, 6)),
        back_in_parts_(AnyInt(engine, 0, 1) == 1),
        layers_as_a_whole_(AnyInt(engine, 0, 2) == 0) {
    std::string x = Forward("embed", "OTHER", {"tokens"});
    for (int layer = 0; layer < layers; ++layer) x = Layer("l" + std::to_string(layer) + ".", x);
    if (!late_.empty()) x = Combine("late_", late_);
    Forward("loss", "OTHER", {x});
    for (auto one = forward_.rbegin(); one != forward_.rend(); ++one) Backward(*one);
  }

  json graph() const { return Graph(instructions_, max_parts_); }

 private:
  double AnyTime(double least_s, double most_s) { return std::uniform_real_distribution(least_s, most_s)(engine_); }

  std::string Forward(const std::string& id, const std::string& op, std::vector<std::string> inputs) {
    const bool exchanges = op == "ALL_TO_ALL";
    const double time_s = exchanges                          ? AnyTime(0.2, longest_exchange_s_)
                          : op == "EXPERT" || op == "MATMUL" ? AnyTime(0.5, 6)
                                                             : AnyTime(0, 1);
    json step = Step(id, op, time_s, std::move(inputs));
    const double launch_s = AnyTime(0, 0.2);
    std::vector<double> part_s = {time_s};
    for (int k = 2; k <= max_parts_; ++k) part_s.push_back(time_s / k + launch_s);
    step["partTimesS"] = part_s;
    instructions_.push_back(step);
    forward_.push_back(step);
    return step["outputs"][0];
  }

  std::string Layer(const std::string& name, const std::string& x) {
    std::string y = x;
    for (int i = AnyInt(engine_, 1, 3); i > 0; --i) {
      y = Forward(name + "dense" + std::to_string(i), AnyInt(engine_, 0, 2) > 0 ? "MATMUL" : "LAYER_NORM", {y});
    }
    if (!late_.empty()) y = Forward(name + "add_late", "ELEMENTWISE", {y, Combine(name + "late_", late_)});
    late_.clear();
    const std::string gate = Forward(name + "gate", "GATE", {y});
    if (AnyInt(engine_, 0, 3) == 0) instructions_.back()["gate"] = "BATCH_PRIORITIZED";
    const std::string sent = Forward(name + "dispatch", "DISPATCH", {y, gate});
    const std::string got = Forward(name + "all_to_all1", "ALL_TO_ALL", {sent});
    std::string beside = y;  // What runs while tokens are on their way: a shared expert, or another layer's start.
    const auto run_beside = [&](const std::string& id) {
      for (int i = std::max(0, AnyInt(engine_, -2, 2)); i > 0; --i) {
        beside = Forward(name + id + std::to_string(i), "MATMUL", {beside});
      }
    };
    run_beside("first");
    const std::string made = Forward(name + "experts", "EXPERT", {got});
    const std::string back = Forward(name + "all_to_all2", "ALL_TO_ALL", {made});
    if (layers_as_a_whole_) {
      for (json& one : instructions_) {
        if (one["outputs"][0] == gate || one["outputs"][0] == back) one["layer"] = name;
      }
    }
    run_beside("second");
    if (AnyInt(engine_, 0, 2) == 0) {
      late_ = back;
      return beside;
    }
    return Forward(name + "add", "ELEMENTWISE", {Combine(name, back), beside});
  }

  std::string Combine(const std::string& name, const std::string& back) {
    return Forward(name + "combine", "COMBINE", {back});
  }

  void Backward(const json& one) {
    const std::string id = one["id"], op = one["op"];
    std::vector<std::string> gradients;
    for (const json& reader : forward_) {
      const std::vector<std::string> read = reader["inputs"];
      if (std::ranges::find(read, one["outputs"][0].get<std::string>()) != read.end()) {
        gradients.push_back(reader["id"].get<std::string>() + ".dx'");
      }
    }
    const double time_s = one["timeS"].get<double>();
    const bool exchanges = op == "ALL_TO_ALL", weights = op == "MATMUL" || op == "EXPERT";
    instructions_.push_back(
        Step(id + ".dx", op, exchanges ? time_s : time_s * AnyTime(0.8, 1.5), gradients, "BACKWARD"));
    if (back_in_parts_) GoBackInParts(id);
    if (!weights) return;
    instructions_.push_back(Step(id + ".dw", op, time_s * AnyTime(0.8, 1.2), gradients, "BACKWARD"));
    instructions_.back()["weightGradient"] = true;
    if (back_in_parts_) GoBackInParts(id);
  }

  void GoBackInParts(const std::string& forward) {
    json& step = instructions_.back();
    const double time_s = step["timeS"], launch_s = AnyTime(0, 0.2);
    step["forward"] = forward;
    for (int k = 1; k <= max_parts_; ++k) step["partTimesS"].push_back(k == 1 ? time_s : time_s / k + launch_s);
  }

  std::mt19937_64& engine_;
  const int max_parts_;
  const bool back_in_parts_, layers_as_a_whole_;
  const double longest_exchange_s_ = AnyTime(2, 20);
  std::vector<json> instructions_, forward_;
  std::string late_;  // What came back from experts and is still to be combined.
};

// What is wrong with the plan; empty: it is legal, and no later than the given order, than the paper's plan, and than
// either pass alone, the paper's and ours.
std::string PlanComplaint(const json& graph, const json& answer, const LancetOptions& options) {
  if (std::string complaint = LancetChecker(graph).Complaint(answer); !complaint.empty()) return complaint;
  const double time_s = answer.at("rules").at("lancet").at("timeS");
  const TimedGraph timed = Timed(graph);
  const auto later_than = [&](double other_s) { return time_s > other_s * (1 + kRounding); };
  if (later_than(PlanOfPaper(timed).time_s)) return "later than the paper's plan";
  for (const LancetPasses& alone : {LancetPasses{.weight_gradients = false}, LancetPasses{.partition = false}}) {
    const std::string pass = alone.partition ? "partition" : "weight gradients";
    if (later_than(PlanOfPaper(timed, alone).time_s)) return "later than the paper's " + pass + " alone";
    const LancetSchedule schedule = ChooseSchedule(timed, {.passes = alone, .budget = options.budget});
    if (!alone.partition && !schedule.ranges.empty()) return "ranges are cut without partition";
    if (!alone.weight_gradients && !schedule.places.empty()) return "places without weight gradients";
    if (later_than(schedule.time_s)) return "later than " + pass + " alone";
  }
  return {};
}

// With the test that follows, 2,000 graphs.
TEST(LancetTest, SmallGraphsAreAnsweredAsByBruteForce) {
  std::mt19937_64 engine(TestSeed());
  int cut = 0, moved = 0;
  for (int round = 0; round < 1200; ++round) {
    const json graph = AnyGraph(engine, AnyInt(engine, 0, 6), AnyInt(engine, 1, 6));
    const json answer = AnswerOf(graph);
    ASSERT_EQ(PlanComplaint(graph, answer, {}), "") << graph.dump(1) << answer.dump(1);
    const json& lancet = answer.at("rules").at("lancet");
    const double best_s = LancetChecker(graph).BruteForceS();
    ASSERT_NEAR(lancet.at("timeS").get<double>(), best_s, kRounding * best_s) << graph.dump(1) << answer.dump(1);
    cut += !lancet.at("partitions").empty();
    moved += !lancet.at("weightGradients").empty();
  }
  EXPECT_GT(cut, 120);
  EXPECT_GT(moved, 120);
}

// Too large for all choices to be compared, and with less time for it than by default, or none.
TEST(LancetTest, LargerGraphsAreLegalAndNeverLaterThanThePapersPlanOrEitherPassAlone) {
  std::mt19937_64 engine(TestSeed());
  for (int round = 0; round < 800; ++round) {
    const LancetOptions options = {.budget = {.refined_launches = round % 2 * 2e5}};
    const json graph = round % 8 == 0 ? AnyGraph(engine, AnyInt(engine, 0, 40), AnyInt(engine, 1, 40))
                                      : StepOfLayers(engine, AnyInt(engine, 1, 5)).graph();
    const json answer = AnswerOf(graph, options);
    ASSERT_EQ(PlanComplaint(graph, answer, options), "") << graph.dump(1) << answer.dump(1);
  }
}

TEST(LancetTest, CandidatesDifferAndAreInTheOrderOfTheirEnds) {
  std::mt19937_64 engine(TestSeed());
  size_t most = 0;
  for (int round = 0; round < 100; ++round) {
    const TimedGraph graph = Timed(StepOfLayers(engine, AnyInt(engine, 1, 4)).graph());
    const LancetSchedule schedule = ChooseSchedule(graph, {.budget = {.refined_launches = 1e5}});
    const std::vector<LancetCandidate>& all = schedule.candidates;
    ASSERT_FALSE(all.empty());
    ASSERT_LE(all.size(), kMostCandidates);
    most = std::max(most, all.size());
    EXPECT_EQ(all.front().ranges, schedule.ranges);
    EXPECT_EQ(all.front().places, schedule.places);
    EXPECT_EQ(all.back().ranges, Cuts());
    EXPECT_EQ(all.back().places, std::vector<GradientPlace>());
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].time_s, EndS(graph, *LaunchOrder(graph, all[i].ranges, all[i].places)));
      EXPECT_GE(all[i].time_s, all[i == 0 ? 0 : i - 1].time_s * (1 - kRounding));
      for (size_t j = 0; j < i; ++j) EXPECT_FALSE(all[i].ranges == all[j].ranges && all[i].places == all[j].places);
    }
  }
  EXPECT_GE(most, 4u);
}

// A chain leaves no choice but sums, so the dynamic program alone is as good as all choices.
TEST(LancetTest, TheDynamicProgramIsExactOnChains) {
  std::mt19937_64 engine(TestSeed());
  for (int round = 0; round < 3000; ++round) {
    json graph = AnyGraph(engine, AnyInt(engine, 1, 7), 0);
    std::string before = "w";
    for (json& one : graph["instructions"]) {
      one["inputs"] = {before};
      before = one["outputs"][0];
    }
    const TimedGraph timed = Timed(graph);
    const CutSearchOutcome outcome = ChooseRanges(timed, 1e9);
    const double best_s = LancetChecker(graph).BruteForceS();
    ASSERT_NEAR(EndS(timed, *LaunchOrder(timed, outcome.ranges, {})), best_s, kRounding * best_s) << graph.dump(1);
    ASSERT_TRUE(outcome.all_ranges);
  }
}

// The time that cutting a range adds to the backward pass, where nothing else runs between.
double AddedToWayBackS(const TimedGraph& graph, const CutRange& range) {
  std::vector<int> back;
  for (int i = 0; i < graph.size(); ++i) {
    const int forward = graph.instructions[i].forward;
    if (forward >= range.first && forward <= range.last) back.push_back(i);
  }
  std::vector<PartLaunch> in_parts, whole;
  if (back.empty()) return 0;
  AppendParts(graph, back, range.parts, in_parts);
  AppendParts(graph, back, 1, whole);
  return EndS(graph, in_parts) - EndS(graph, whole);
}

// T(n) as the paper writes it, each range played from its start, with its way back.
Cuts PlainDynamicProgram(const TimedGraph& graph) {
  Cuts chosen;
  for (const std::vector<int>& borders : GroupBorders(graph)) {
    std::vector<double> rest_s(borders.size(), std::numeric_limits<double>::infinity());
    std::vector<std::pair<CutRange, size_t>> best(borders.size());
    rest_s.back() = 0;
    for (size_t from = borders.size() - 1; from-- > 0;) {
      for (int parts = 1; parts <= graph.max_parts; ++parts) {
        RangeAxes axes(graph);
        axes.Start(borders[from]);
        double length_s = 0;
        for (size_t to = from + 1; to < borders.size(); ++to) {
          bool fits = true;
          for (int i = borders[to - 1]; i < borders[to]; ++i) {
            fits = fits && (parts == 1 || axes.Extend());
            length_s += graph.instructions[i].whole_s();
          }
          const bool short_enough = graph.max_range_s == 0 || length_s <= graph.max_range_s * (1 + 1e-12);
          if (!fits || (parts > 1 && !short_enough)) break;
          const CutRange range = {borders[from], borders[to] - 1, parts};
          std::vector<PartLaunch> launches;
          AppendRange(graph, range, launches);
          if (parts > 1 && !LaunchOrder(graph, std::vector{range}, {})) continue;
          const double time_s = EndS(graph, launches);
          const double total_s = time_s + (parts > 1 ? AddedToWayBackS(graph, range) : 0) + rest_s[to];
          if (total_s >= rest_s[from] * (rest_s[from] > 0 ? 1 - 1e-12 : 1 + 1e-12)) continue;
          rest_s[from] = total_s;
          best[from] = {{range.first, range.last, parts, time_s}, to};
        }
      }
    }
    for (size_t from = 0; from + 1 < borders.size(); from = best[from].second) {
      if (best[from].first.parts > 1) chosen.push_back(best[from].first);
    }
  }
  return chosen;
}

TEST(LancetTest, BoundsOfRangesChangeNothingOfTheDynamicProgram) {
  std::mt19937_64 engine(TestSeed());
  size_t ranges = 0;
  for (int round = 0; round < 3000; ++round) {
    const json graph = AnyGraph(engine, AnyInt(engine, 1, 24), AnyInt(engine, 0, 6));
    const TimedGraph timed = Timed(graph);
    const CutSearchOutcome outcome = ChooseRanges(timed, 1e9);
    ASSERT_EQ(outcome.ranges, PlainDynamicProgram(timed)) << graph.dump(1);
    ranges += outcome.ranges.size();
  }
  EXPECT_GT(ranges, 1000u);
}

TEST(LancetTest, TheSameGraphGivesTheSameAnswer) {
  std::mt19937_64 engine(TestSeed());
  const json graph = AnyGraph(engine, 40, 40);
  EXPECT_EQ(AnswerOf(graph), AnswerOf(graph));
}

// ---- Ranges whose ways back are cut, too.

TEST(WayBackTest, ARangeIsCutBothWays) {
  // Whole: 12 s there; back 8 s, and 4 s in which the weight gradient runs beside the last exchange.
  const json lancet = AnswerOf(ThereAndBack(2), {.passes = {.weight_gradients = false}}).at("rules").at("lancet");
  EXPECT_EQ(lancet.at("unscheduledTimeS"), 24);
  EXPECT_EQ(lancet.at("partitions").size(), 1u);
  EXPECT_EQ(lancet.at("partitions")[0].at("timeS"), 8);
  // Back: rows until 2 and 4, experts with their weights until 4, 6, 8 and 10, rows until 6 and 10; then weights' last.
  EXPECT_EQ(lancet.at("timeS"), 8 + 10);
  EXPECT_THAT(lancet.at("order"), ::testing::Contains("ffn.dw#2"));
  EXPECT_EQ(LancetChecker(ThereAndBack(2)).Complaint(AnswerOf(ThereAndBack(2))), "");
}

TEST(WayBackTest, ARangeThatCostsMoreOnItsWayBackThanItSavesIsNotCut) {
  const json graph = ThereAndBack(4);
  const json answer = AnswerOf(graph, {.passes = {.weight_gradients = false}});
  EXPECT_THAT(answer.at("rules").at("lancet").at("partitions"), IsEmpty());
  json paper = graph;  // Which leaves its way back whole.
  for (json& one : paper["instructions"]) one.erase("forward");
  EXPECT_EQ(AnswerOf(paper, {.passes = {.weight_gradients = false}}).at("rules").at("lancet").at("timeS"), 8 + 12);
}

TEST(WayBackTest, AWeightGradientCoversTheFirstPartOfAnAllToAllThatGoesBackInParts) {
  json graph = ThereAndBack(2);
  graph["instructions"][5]["partTimesS"] = {4, 3};  // Whole it is shorter.
  const json answer = AnswerOf(graph);
  const json& lancet = answer.at("rules").at("lancet");
  ASSERT_EQ(lancet.at("weightGradients").size(), 1u);
  const std::vector<std::string> order = lancet.at("order");
  const auto covers = std::ranges::find(order, "ffn.dw");
  ASSERT_NE(covers, order.end());
  EXPECT_EQ(*(covers - 1), lancet.at("weightGradients")[0].at("allToAll").get<std::string>() + "#1");
  EXPECT_EQ(LancetChecker(graph).Complaint(answer), "");
}

TEST(WayBackTest, AForwardInstructionThatIsNoneIsRefused) {
  const auto with = [](int instruction, const std::string& forward) {
    json graph = ThereAndBack(2);
    graph["instructions"][instruction]["forward"] = forward;
    return Refusal(graph);
  };
  EXPECT_EQ(
      with(3, "nobody"),
      "instructions[3] (fetch.dx).forward: found nobody, expected the id of an instruction before it in phase FORWARD");
  EXPECT_THAT(with(4, "fetch.dx"), HasSubstr("instructions[4] (ffn.dx).forward: found fetch.dx, expected the id"));
  EXPECT_EQ(with(1, "send"), "instructions[1] (ffn).forward: found send, expected none in phase FORWARD");
  EXPECT_THAT(with(3, std::string(300, 'x')), HasSubstr("forward: found 300 bytes, expected a name of 1 to 256"));
}

// GPT2-S-MoE as the paper has it: every other layer of 12 has experts, two a GPU of 16, batches of 24 × 512.
TEST(LancetTest, ATransformerIsPlannedLegallyAndFaster) {
  ModelConfig model = {.model_dim = 768,
                       .dense_hidden_dim = 3072,
                       .heads = 12,
                       .kv_heads = 12,
                       .head_dim = 64,
                       .experts = 32,
                       .top_k = 1,
                       .expert_hidden_dim = 3072,
                       .vocab = 50257};
  for (int i = 0; i < 12; ++i) model.moe_layer.push_back(i % 2 == 1);
  Profile profile = {.cluster = {.nodes = 2, .gpus_per_node = 8}};
  profile.collectives = {Line(Over(Collective::kAllToAll, {16, 8}), 5e-5, 8e-11)};
  profile.kernels = {Line(Kernel::kExpertGemm, 1e-5, 6.7e-15), Line(Kernel::kDeviceCopy, 5e-6, 1.4e-12),
                     Line(Kernel::kGate, 1e-5, 4e-12), Line(Kernel::kPermute, 1e-5, 2e-12)};
  for (const GateKind gate : {GateKind::kSwitch, GateKind::kBatchPrioritized}) {
    double limited_s = 0;
    for (const bool limited : {true, false}) {
      const ModelGraphOptions options = {.batch = 24,
                                         .sequence_length = 512,
                                         .expert_parallel = 16,
                                         .ranks_per_node = 8,
                                         .gate = gate,
                                         .paper_limits = limited};
      PriceNotes notes;
      auto graph = TrainingGraphOf(model, options, profile, notes);
      ASSERT_TRUE(graph.ok()) << graph.status().message();
      // The checker knows no boundaries.
      for (Instruction& one : graph->instructions) one.counts_bytes.reset(), one.output_bytes.clear();
      const json text = json::parse(ToJson(ToProto(*graph))), answer = AnswerOf(text);
      EXPECT_EQ(LancetChecker(text).Complaint(answer), "");
      const json& lancet = answer.at("rules").at("lancet");
      const double time_s = lancet.at("timeS");
      EXPECT_LT(time_s, 0.95 * lancet.at("unscheduledTimeS").get<double>());
      if (limited) {
        EXPECT_EQ(lancet.at("partitions").size(), 6u);  // One for each layer of experts.
        limited_s = time_s;
      }
      EXPECT_LE(time_s, limited_s);
    }
  }
}

TEST(LancetTest, TheLargestGraphsEnd) {
  // One layer after the other, no limits: the budget keeps the time bounded, and the answer says so.
  json graph = Graph({}, 64);
  std::string before = "x";
  static const std::vector<std::string> kLayer = {"MATMUL", "DISPATCH",   "ALL_TO_ALL",
                                                  "EXPERT", "ALL_TO_ALL", "COMBINE"};
  for (int i = 0; i < 6000; ++i) {
    json step = Evenly(Step("i" + std::to_string(i), i == 0 ? "OTHER" : kLayer[i % 6], 1, {before}), 64);
    before = step["outputs"][0];
    graph["instructions"].push_back(step);
  }
  const auto answer = PlanOf(graph);
  ASSERT_TRUE(answer.ok());
  EXPECT_LT(answer->lancet.time_s, answer->lancet.unscheduled_time_s);
  EXPECT_THAT(answer->warnings, ::testing::Contains(HasSubstr("the longest ranges were not tried")));
}

}  // namespace
}  // namespace moeplan::planner
