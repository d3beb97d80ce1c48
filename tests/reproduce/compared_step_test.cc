// The schedules that `reproduce lancet` compares, on steps whose ends are worked out by hand.
#include "cli/reproduce/lancet/compared_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/reproduce/lancet/partition_range.h"
#include "models/plan/step_tasks.h"

namespace moeplan::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Instruction Make(const std::string& id, InstructionOp op, double time_s, std::vector<std::string> inputs,
                 Pass phase = Pass::kForward) {
  Instruction one = {
      .id = id, .op = op, .phase = phase, .time_s = time_s, .inputs = std::move(inputs), .outputs = {id + ".y"}};
  if (!CollectiveOf(op)) return one;
  one.bytes = 1e6;
  one.group_size = 4;
  one.ranks_per_node = 2;
  for (int k = 1; k <= 8; ++k) one.part_times_s.push_back(time_s / k);
  return one;
}

// There and back through a layer of experts: each all-to-all, the experts and both their gradients take 8 s.
TrainingGraph ThereAndBack() {
  TrainingGraph graph = {.max_parts = 8};
  graph.instructions = {Make("there", InstructionOp::kAllToAll, 8, {"tokens"}),
                        Make("experts", InstructionOp::kExpert, 8, {"there.y"}),
                        Make("back", InstructionOp::kAllToAll, 8, {"experts.y"}),
                        Make("back.dx", InstructionOp::kAllToAll, 8, {"back.y"}, Pass::kBackward),
                        Make("experts.dx", InstructionOp::kExpert, 8, {"back.dx.y"}, Pass::kBackward),
                        Make("experts.dw", InstructionOp::kExpert, 8, {"back.dx.y"}, Pass::kBackward),
                        Make("there.dx", InstructionOp::kAllToAll, 8, {"experts.dx.y"}, Pass::kBackward)};
  graph.instructions[5].weight_gradient = true;
  return graph;
}

Profile NoProfile() { return {.name = "by hand", .cluster = {.nodes = 2, .gpus_per_node = 2}}; }

ComparedStep Compared(const TrainingGraph& graph, const StepChanges& changes = {},
                      const Profile& profile = NoProfile()) {
  const auto step = CompareStep(graph, profile, changes);
  EXPECT_TRUE(step.ok()) << step.status().message();
  return step.ok() ? *step : ComparedStep();
}

TEST(ComparedStepTest, TheStandInForTutelCutsBothPasses) {
  const ComparedStep step = Compared(ThereAndBack());
  // As given: 24 there, all exchanges bare; back 8, 8 and 8 for both gradients, there.dx beside the second one.
  EXPECT_DOUBLE_EQ(step.raf.time_s, 48);
  EXPECT_DOUBLE_EQ(step.raf.exposed_s, 24);
  // In 8 parts of 1: all-to-alls take 16 there, the experts from 1 to 9 beside them. Back, both gradients of part after
  // part from 1 to 17, and part j of there.dx behind the one at 2 j: the last ends at 17. Bare: 8 there, and 1.
  EXPECT_DOUBLE_EQ(step.tutel.time_s, 33);
  EXPECT_DOUBLE_EQ(step.tutel.exposed_s, 9);
  EXPECT_DOUBLE_EQ(step.faster().time_s, 33);
  // What is to be run says the same: two ranges, and every part by its name.
  const LancetAnswer& in_parts = step.in_parts.lancet;
  ASSERT_EQ(in_parts.partitions.size(), 2u);
  EXPECT_EQ(in_parts.partitions[1].first, "back.dx");
  EXPECT_EQ(in_parts.partitions[1].parts, 8);
  EXPECT_EQ(in_parts.order.size(), 7u * 8);
  EXPECT_TRUE(BuildStepTasks(step.in_parts.graph, in_parts).ok());
}

TEST(ComparedStepTest, GainsAndCutsByHand) {
  EXPECT_DOUBLE_EQ(Gain({.time_s = 48}, {.time_s = 40}), 0.2);
  EXPECT_DOUBLE_EQ(Cut({.exposed_s = 24}, {.exposed_s = 6}), 0.75);
  EXPECT_DOUBLE_EQ(Cut({}, {}), 0);
}

TEST(ComparedStepTest, APassThatIsLeftOutGainsNothing) {
  const TrainingGraph graph = ThereAndBack();
  const StepEnd both = Compared(graph).lancet;
  const StepEnd gradients = Compared(graph, {.passes = {.partition = false}}).lancet;
  const StepEnd neither = Compared(graph, {.passes = {.weight_gradients = false, .partition = false}}).lancet;
  // The gradient already runs beside there.dx.
  EXPECT_DOUBLE_EQ(gradients.time_s, 48);
  EXPECT_DOUBLE_EQ(neither.time_s, 48);
  // There all is cut, in 16; back, 24 stay.
  EXPECT_DOUBLE_EQ(Compared(graph, {.paper_limits = false}).lancet.time_s, 40);
  EXPECT_LE(both.time_s, gradients.time_s);
}

TEST(ComparedStepTest, WithoutSumsTheOptimizerReadsTheGradients) {
  TrainingGraph graph = ThereAndBack();
  graph.instructions.push_back(
      Make("sum", InstructionOp::kAllReduce, 100, {"experts.dw.y", "there.dx.y"}, Pass::kBackward));
  graph.instructions.push_back(Make("optimizer", InstructionOp::kOther, 1, {"sum.y", "states"}, Pass::kBackward));
  EXPECT_DOUBLE_EQ(Compared(graph).raf.time_s, 48 + 100 + 1);
  EXPECT_DOUBLE_EQ(Compared(graph).raf.exposed_s, 24 + 100);
  const TrainingGraph without = Changed(graph, {.gradient_sums = false});
  EXPECT_TRUE(ValidateTrainingGraph(without).ok());
  ASSERT_EQ(without.instructions.size(), 8u);
  EXPECT_THAT(without.instructions.back().inputs, ElementsAre("experts.dw.y", "there.dx.y", "states"));
  EXPECT_DOUBLE_EQ(Compared(graph, {.gradient_sums = false}).raf.time_s, 48 + 1);
  EXPECT_DOUBLE_EQ(Compared(graph, {.sum_scale = 0.25}).raf.time_s, 48 + 25 + 1);
}

TEST(ComparedStepTest, EachScaleIsOfItsOwnInstructions) {
  const TrainingGraph scaled = Changed(ThereAndBack(), {.exchange_scale = 2, .product_scale = 3});
  EXPECT_EQ(scaled.instructions[0].time_s, 16);
  EXPECT_EQ(scaled.instructions[0].part_times_s[3], 4);
  EXPECT_EQ(scaled.instructions[1].time_s, 24);
  EXPECT_DOUBLE_EQ(SumS(scaled, InstructionOp::kAllToAll), 4 * 16);
  // One layer of experts: a stretch is the whole forward pass of 16 + 24 + 16, a group a fifth.
  EXPECT_DOUBLE_EQ(scaled.max_range_s, 56);
  EXPECT_DOUBLE_EQ(scaled.group_s, 56 / 5.0);
  EXPECT_EQ(Changed(ThereAndBack(), {.paper_limits = false}).max_range_s, 0);
  EXPECT_EQ(Changed(ThereAndBack(), {.most_parts = 4}).max_parts, 4);
}

// Experts and all-to-alls take twice as long beside each other.
Profile WithContention() {
  Profile profile = NoProfile();
  const auto line = [](double per_unit) { return MakeCostModel(AlphaBeta{0, per_unit}); };
  profile.collectives = {
      {{.collective = Collective::kAllToAll, .group = {4, 2}}, line(1e-6)},
      {{.collective = Collective::kAllToAll, .group = {4, 2}, .contention = Contention::kWithExpertGemm}, line(2e-6)}};
  profile.kernels = {{{.kernel = Kernel::kExpertGemm}, line(1e-6)},
                     {{.kernel = Kernel::kExpertGemm, .contention = Contention::kWithAllToAll}, line(2e-6)}};
  for (CollectiveModel& entry : profile.collectives) entry.model.size_low = entry.model.size_high = 1e6;
  for (KernelModel& entry : profile.kernels) entry.model.size_low = entry.model.size_high = 1e6;
  return profile;
}

TEST(ComparedStepTest, ContentionSlowsAllSchedules) {
  // there.dx and the second gradient run beside each other, 8 each: 16 then.
  EXPECT_DOUBLE_EQ(Compared(ThereAndBack(), {}, WithContention()).raf.time_s, 56);
  EXPECT_DOUBLE_EQ(Compared(ThereAndBack(), {.contention = false}, WithContention()).raf.time_s, 48);
  EXPECT_GT(Compared(ThereAndBack(), {}, WithContention()).tutel.time_s, 33);
  EXPECT_DOUBLE_EQ(Compared(ThereAndBack(), {.contention = false}, WithContention()).tutel.time_s, 33);
  // Compute takes 2.5 times as long beside it instead of 2: of 8 there.dx has done all after 16, compute 6.4.
  EXPECT_DOUBLE_EQ(Compared(ThereAndBack(), {.compute_slowdown = 1.25}, WithContention()).raf.time_s,
                   24 + 16 + 16 + 1.6);
}

// 4 s of computation before and behind a layer of experts as above.
TrainingGraph Forward() {
  TrainingGraph graph = {.max_parts = 8};
  graph.instructions = {Make("embedding", InstructionOp::kOther, 0, {"tokens"}),
                        Make("before", InstructionOp::kMatmul, 4, {"embedding.y"}),
                        Make("dispatch", InstructionOp::kDispatch, 0, {"before.y"}),
                        Make("there", InstructionOp::kAllToAll, 8, {"dispatch.y"}),
                        Make("experts", InstructionOp::kExpert, 8, {"there.y"}),
                        Make("back", InstructionOp::kAllToAll, 8, {"experts.y"}),
                        Make("combine", InstructionOp::kCombine, 0, {"back.y"}),
                        Make("behind", InstructionOp::kMatmul, 4, {"combine.y"})};
  return graph;
}

TEST(PartitionRangeTest, ForwardTimesByHand) {
  EXPECT_DOUBLE_EQ(*UncutForwardS(Forward(), NoProfile()), 32);
  const auto forwards = ForwardByReach(Forward(), NoProfile(), {0, 0.5, 1});
  ASSERT_TRUE(forwards.ok()) << forwards.status().message();
  ASSERT_EQ(forwards->size(), 3u);
  // All-to-alls and experts alone: 16, in any number of parts, between 4 and 4.
  EXPECT_DOUBLE_EQ((*forwards)[0].forward_s, 24);
  // 2 of either 4 reach no whole instruction but dispatch and combine, which take nothing.
  EXPECT_DOUBLE_EQ((*forwards)[1].forward_s, 24);
  // All in 8 parts: the first all-to-all starts at 0.5, both end at 16.5, and the last part behind at 17.
  EXPECT_DOUBLE_EQ((*forwards)[2].forward_s, 17);
  EXPECT_EQ((*forwards)[2].parts, 8);
}

TEST(PartitionRangeTest, WhatCannotBeCutIsLeftOut) {
  TrainingGraph graph = Forward();
  graph.instructions[1].op = InstructionOp::kOther;
  // From dispatch on: as above, but that the first all-to-all starts at 4.
  const auto forwards = ForwardByReach(graph, NoProfile(), {1});
  EXPECT_DOUBLE_EQ(forwards->front().forward_s, 4 + 16 + 0.5);
}

}  // namespace
}  // namespace moeplan::cli
