// Choices for a training step on the timeline that has contention and boundaries: what they cost, and that what does
// not pay is taken back.
#include "planner/lancet/judge.h"

#include <gtest/gtest.h>

#include "models/cost/profile.h"
#include "models/links/link_load.h"
#include "planner/rules/lancet.h"

namespace moeplan::planner {
namespace {

Instruction Make(const std::string& id, InstructionOp op, double time_s, std::vector<std::string> inputs) {
  Instruction one = {.id = id, .op = op, .time_s = time_s, .inputs = std::move(inputs), .outputs = {id + ".y"}};
  if (!CollectiveOf(op)) return one;
  one.bytes = 1e6;
  one.group_size = 4;
  one.ranks_per_node = 2;
  for (int k = 1; k <= 4; ++k) one.part_times_s.push_back(time_s / k);
  return one;
}

// Exchange of 8, experts of 8, exchange of 8, and 1 before and behind: 26, and 18 in any number of parts, because the
// exchanges are as long as that.
TrainingGraph Layer() {
  TrainingGraph graph = {.max_parts = 4};
  graph.instructions = {Make("x", InstructionOp::kMatmul, 1, {"tokens"}),
                        Make("dispatch", InstructionOp::kDispatch, 0, {"x.y"}),
                        Make("there", InstructionOp::kAllToAll, 8, {"dispatch.y"}),
                        Make("experts", InstructionOp::kExpert, 8, {"there.y"}),
                        Make("back", InstructionOp::kAllToAll, 8, {"experts.y"}),
                        Make("combine", InstructionOp::kCombine, 0, {"back.y"}),
                        Make("norm", InstructionOp::kLayerNorm, 1, {"combine.y"})};
  return graph;
}

// Copies take a second a byte; experts and all-to-alls take `beside` times as long beside each other.
Profile WithContention(double beside) {
  Profile profile = {.cluster = {.nodes = 2, .gpus_per_node = 2}};
  const auto line = [](double per_unit) { return MakeCostModel(AlphaBeta{0, per_unit}); };
  const CollectiveKey exchange = {.collective = Collective::kAllToAll, .group = {4, 2}};
  profile.collectives = {{exchange, line(1e-6)}};
  const KernelKey product = {.kernel = Kernel::kExpertGemm};
  const auto curve = [](double factor) { return MakeCostModel(LogLog{{{1e3, factor * 1e-6}, {1e9, factor}}}); };
  profile.kernels = {{product, curve(1)}, {{.kernel = Kernel::kDeviceCopy}, line(1)}};
  if (beside > 1) {
    CollectiveKey slowed = exchange;
    slowed.contention = Contention::kWithExpertGemm;
    profile.collectives.push_back({slowed, line(beside * 1e-6)});
    KernelKey slowed_product = product;
    slowed_product.contention = Contention::kWithAllToAll;
    profile.kernels.push_back({slowed_product, curve(beside)});
  }
  return profile;
}

double PlayedS(const TrainingGraph& graph, const Profile& profile, int parts) {
  PriceNotes notes;
  const TimedGraph timed = *TimeGraph(graph, &profile, notes);
  Judge judge(graph, timed, &profile);
  const StepChoice choice = {.ranges = parts > 1 ? std::vector<CutRange>{{2, 4, parts, 0}} : std::vector<CutRange>()};
  return judge.Play(choice)->played.total_s;
}

TEST(JudgeTest, WithoutContentionAndBoundariesItIsTheTimelineOfTheSearch) {
  EXPECT_NEAR(PlayedS(Layer(), WithContention(1), 1), 26, 1e-12);
  EXPECT_NEAR(PlayedS(Layer(), WithContention(1), 2), 18, 1e-12);
  EXPECT_NEAR(PlayedS(Layer(), WithContention(1), 4), 18, 1e-12);
}

TEST(JudgeTest, WhatRunsBesideIsSlowedDown) {
  // Of two parts, 4 seconds run beside each other on two occasions, each at half the speed.
  EXPECT_NEAR(PlayedS(Layer(), WithContention(2), 2), 18 + 8, 1e-9);
  EXPECT_NEAR(PlayedS(Layer(), WithContention(2), 1), 26, 1e-12);
}

TEST(JudgeTest, BoundariesTakeTheirTime) {
  TrainingGraph graph = Layer();
  graph.instructions[4].output_bytes = {0.5};  // Half a second to put together.
  graph.instructions[2].counts_bytes = 1e4;    // Not sent along the capacity.
  EXPECT_NEAR(PlayedS(graph, WithContention(1), 2), 18.5, 1e-12);
}

TEST(JudgeTest, ACutThatContentionMakesLateIsTakenBack) {
  const auto plan = [](double beside) {
    const Profile profile = WithContention(beside);
    return *PlanGraph(Layer(), &profile);
  };
  EXPECT_EQ(plan(1).lancet.partitions.size(), 1u);
  EXPECT_LE(plan(1).lancet.time_s, 18 + 1e-12);
  EXPECT_TRUE(plan(2.5).lancet.partitions.empty());
  EXPECT_NEAR(plan(2.5).lancet.time_s, 26, 1e-12);
}

TEST(JudgeTest, PartsThatBoundariesMakeLateAreFewer) {
  TrainingGraph graph = Layer();
  // Cut along samples from dispatch on: the counts of each part take 0.75 s in each exchange.
  for (const int i : {2, 4}) graph.instructions[i].counts_bytes = 0.75e6;
  graph.instructions[1].output_bytes = {0};
  Profile profile = WithContention(1);
  PriceNotes notes;
  const TimedGraph timed = *TimeGraph(graph, &profile, notes);
  Judge judge(graph, timed, &profile);
  const std::vector<StepChoice> choices = {{.ranges = {{1, 5, 4, 0}}}, {}};
  const JudgedChoice chosen = judge.Choose(choices, {});
  ASSERT_EQ(chosen.choice.ranges.size(), 1u);
  EXPECT_LT(chosen.choice.ranges[0].parts, 4);
  for (const int parts : {2, 3, 4}) {
    EXPECT_LE(chosen.played.total_s, judge.Play({.ranges = {{1, 5, parts, 0}}})->played.total_s + 1e-12);
  }
}

// Rates of links as groups of several sizes tell them: a network of so many bytes/s, and links inside of a hundred
// times as many. Of n ranks, each sends and gets (n - 1) / n of the size.
Profile WithLinks(double network_bytes_per_s) {
  Profile profile = {.cluster = {.nodes = 4, .gpus_per_node = 2}};
  for (const Collective collective : {Collective::kAllToAll, Collective::kAllGather}) {
    for (const GroupShape& group : {GroupShape{2, 1}, {4, 1}, {2, 2}}) {
      const double rate = Spans(group) ? network_bytes_per_s : 100 * network_bytes_per_s;
      const CollectiveKey key = {.collective = collective, .group = group};
      profile.collectives.push_back({key, MakeCostModel(AlphaBeta{1e-6, (1 - 1.0 / group.size) / rate})});
    }
  }
  return profile;
}

// Two exchanges of 8 s on two streams, each of which sends 8 MB.
TEST(JudgeTest, CollectivesOfTwoStreamsDivideTheNetwork) {
  const auto played_s = [](GroupShape other, double network_bytes_per_s) {
    TrainingGraph graph = {.max_parts = 1};
    Instruction one = {.id = "one", .op = InstructionOp::kAllToAll, .time_s = 8};
    one.bytes = 16e6;  // Half of it stays where it is.
    one.group_size = 2, one.ranks_per_node = 1;
    graph.instructions = {one, one};
    Instruction& second = graph.instructions[1];
    second.id = "two", second.stream = StreamKind::kCopy;
    second.group_size = other.size, second.ranks_per_node = other.ranks_per_node;
    const Profile profile = WithLinks(network_bytes_per_s);
    PriceNotes notes;
    const TimedGraph timed = *TimeGraph(graph, &profile, notes);
    return Judge(graph, timed, &profile).Play({})->played.total_s;
  };
  EXPECT_NEAR(played_s({2, 1}, 1e6), 16, 0.2);
  EXPECT_NEAR(played_s({2, 2}, 1e6), 8, 1e-9);
  // A network of four times the rate has room for both.
  EXPECT_NEAR(played_s({2, 1}, 4e6), 8, 1e-9);
}

// Beside a gather of 8 s on another stream that sends 8 MB over a network of 1 MB/s, under a profile with contention.
TEST(JudgeTest, TradesOfHeadsDivideTheNetworkWhereAllToAllsHaveMeasurements) {
  const auto played_s = [](InstructionOp op) {
    TrainingGraph graph = {.max_parts = 1};
    Instruction gather = {.id = "gather", .op = InstructionOp::kAllGather, .time_s = 8};
    gather.bytes = 16e6;
    gather.group_size = 2, gather.ranks_per_node = 1;
    gather.stream = StreamKind::kCopy;
    Instruction other = gather;
    other.id = "other", other.op = op, other.stream.reset();
    graph.instructions = {gather, other};
    Profile profile = WithLinks(1e6);
    CollectiveKey measured = {.collective = Collective::kAllToAll, .group = {4, 1}};
    measured.contention = Contention::kWithAllGather;
    profile.collectives.push_back({measured, MakeCostModel(AlphaBeta{1e-6, 1e-6})});
    PriceNotes notes;
    const TimedGraph timed = *TimeGraph(graph, &profile, notes);
    return Judge(graph, timed, &profile).Play({})->played.total_s;
  };
  EXPECT_NEAR(played_s(InstructionOp::kAllToAll), 8, 1e-9);
  EXPECT_NEAR(played_s(InstructionOp::kHeadExchange), 16, 0.2);
}

// A trade of heads is slowed down as the all-to-all that it is, and slows products down as a gather does.
TEST(JudgeTest, ATradeOfHeadsSlowsProductsDownAsAGatherDoes) {
  const auto played_s = [](InstructionOp op) {
    TrainingGraph graph = {.max_parts = 1};
    graph.instructions = {Make("product", InstructionOp::kMatmul, 8, {"x"}), Make("other", op, 8, {"y"})};
    const Profile profile = WithContention(2);
    PriceNotes notes;
    const TimedGraph timed = *TimeGraph(graph, &profile, notes);
    return Judge(graph, timed, &profile).Play({})->played.total_s;
  };
  EXPECT_NEAR(played_s(InstructionOp::kAllToAll), 16, 1e-9);
  EXPECT_NEAR(played_s(InstructionOp::kHeadExchange), 12, 1e-9);
  EXPECT_NEAR(played_s(InstructionOp::kAllGather), 8, 1e-9);
}

TEST(JudgeTest, TheAnswerCarriesItsGraphAndItsTimeline) {
  TrainingGraph graph = Layer();
  graph.instructions.push_back(Make("loss", InstructionOp::kOther, 1, {"norm.y"}));
  for (Instruction& one : graph.instructions) one.output_bytes = {1e-3};
  const Profile profile = WithContention(1);
  const auto answer = PlanGraph(graph, &profile);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->graph, graph);
  const LancetAnswer& lancet = answer->lancet;
  ASSERT_EQ(lancet.partitions.size(), 1u);
  EXPECT_EQ(lancet.partitions[0].joined.size(), 1u);
  ASSERT_FALSE(lancet.timeline.empty());
  EXPECT_EQ(lancet.timeline.size(), lancet.order.size() + 1);
  double end_s = 0;
  for (const TaskTiming& task : lancet.timeline) end_s = std::max(end_s, task.end_s);
  EXPECT_EQ(end_s, lancet.time_s);
  EXPECT_NEAR(lancet.unscheduled_exposed_s, 16, 1e-12);
  EXPECT_LT(lancet.exposed_communication_s, 16);
}

}  // namespace
}  // namespace moeplan::planner
