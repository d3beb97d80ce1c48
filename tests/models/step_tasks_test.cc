// Training steps as task graphs: what waits for what, what a cut adds, and plans that no stream could run.
#include "models/plan/step_tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace moeplan {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Instruction Make(const std::string& id, InstructionOp op, std::vector<std::string> inputs) {
  Instruction one = {.id = id, .op = op, .time_s = 8, .inputs = std::move(inputs), .outputs = {id + ".y"}};
  if (op != InstructionOp::kAllToAll) return one;
  one.bytes = 4096;
  one.group_size = 4;
  one.ranks_per_node = 2;
  one.counts_bytes = 64;
  return one;
}

// dispatch, exchange, experts, exchange, combine, and a norm that reads what combine and the first instruction make.
TrainingGraph Layer() {
  TrainingGraph graph;
  graph.instructions = {Make("x", InstructionOp::kMatmul, {"tokens"}),
                        Make("dispatch", InstructionOp::kDispatch, {"x.y"}),
                        Make("there", InstructionOp::kAllToAll, {"dispatch.y"}),
                        Make("experts", InstructionOp::kExpert, {"there.y"}),
                        Make("back", InstructionOp::kAllToAll, {"experts.y"}),
                        Make("combine", InstructionOp::kCombine, {"back.y"}),
                        Make("norm", InstructionOp::kLayerNorm, {"combine.y", "x.y"})};
  for (Instruction& one : graph.instructions) one.output_bytes = {1024};
  graph.instructions[3].work = {{KernelKey{.kernel = Kernel::kExpertGemm}, 1e6}};
  return graph;
}

std::vector<std::string> Names(const StepTasks& tasks) {
  std::vector<std::string> names;
  for (const Task& task : tasks.graph.tasks) names.push_back(task.name);
  return names;
}

std::vector<std::string> Before(const StepTasks& tasks, const std::string& name) {
  std::vector<std::string> before;
  const auto task = std::ranges::find(tasks.graph.tasks, name, &Task::name);
  EXPECT_NE(task, tasks.graph.tasks.end()) << name;
  if (task == tasks.graph.tasks.end()) return before;
  for (const TaskId id : task->dependencies) before.push_back(tasks.graph.tasks[id].name);
  return before;
}

const StepTask& StepOf(const StepTasks& tasks, const std::string& name) {
  const auto task = std::ranges::find(tasks.graph.tasks, name, &Task::name);
  return tasks.tasks.at(task - tasks.graph.tasks.begin());
}

TEST(StepTasksTest, TheGivenOrderIsATaskForEachInstruction) {
  const TrainingGraph graph = Layer();
  const StepTasks tasks = StepTaskBuilder(graph).Build({}, GivenOrder(graph));
  EXPECT_THAT(Names(tasks), ElementsAre("x", "dispatch", "there", "experts", "back", "combine", "norm"));
  EXPECT_THAT(Before(tasks, "norm"), ElementsAre("x", "combine"));
  EXPECT_EQ(tasks.graph.tasks[2].stream, StreamKind::kInterNode);
  EXPECT_EQ(tasks.graph.tasks[3].stream, StreamKind::kCompute);
  EXPECT_EQ(tasks.graph.tasks[2].kind, TaskKind::kAllToAll);
  EXPECT_EQ(StepOf(tasks, "there").work.at(0).size, 4096);
  EXPECT_EQ(StepOf(tasks, "experts").work.at(0).size, 1e6);
  EXPECT_EQ(StepOf(tasks, "norm").time_s, 8);
}

LancetAnswer CutInTwo(CutAxis axis, const std::string& first, const std::string& last, std::vector<std::string> order) {
  LancetAnswer plan = {.order = std::move(order)};
  plan.partitions = {{.first = first, .last = last, .parts = 2, .axis = axis}};
  return plan;
}

const std::vector<std::string> kCutOrder = {"x",       "dispatch#1", "dispatch#2", "there#1",
                                            "there#2", "experts#1",  "experts#2",  "back#1",
                                            "back#2",  "combine#1",  "combine#2",  "norm"};

TEST(StepTasksTest, PartsWaitForPartsAndBoundariesAreTasks) {
  const TrainingGraph graph = Layer();
  const auto tasks = BuildStepTasks(graph, CutInTwo(CutAxis::kSamples, "dispatch", "combine", kCutOrder));
  ASSERT_TRUE(tasks.ok()) << tasks.status().message();
  EXPECT_THAT(Before(*tasks, "dispatch#2"), ElementsAre("x"));
  EXPECT_THAT(Before(*tasks, "there#2.counts"), ElementsAre("dispatch#2"));
  EXPECT_THAT(Before(*tasks, "there#2"), ElementsAre("dispatch#2", "there#2.counts"));
  EXPECT_THAT(Before(*tasks, "experts#2"), ElementsAre("there#2"));
  EXPECT_THAT(Before(*tasks, "combine#join"), ElementsAre("combine#1", "combine#2"));
  // What reads the range's output behind it waits until its parts are together.
  EXPECT_THAT(Before(*tasks, "norm"), ElementsAre("x", "combine#join"));
  EXPECT_EQ(StepOf(*tasks, "there#1").work.at(0).size, 2048);
  EXPECT_EQ(StepOf(*tasks, "there#1.counts").work.at(0).size, 64);
  EXPECT_EQ(StepOf(*tasks, "experts#2").work.at(0).size, 5e5);
  EXPECT_EQ(StepOf(*tasks, "experts#2").time_s, 4);
  EXPECT_EQ(StepOf(*tasks, "combine#join").work.at(0).size, 1024);
  // Nothing else is put together: it is read inside.
  EXPECT_EQ(tasks->tasks.size(), kCutOrder.size() + 4 + 1);
}

// The layer and the way back over its exchange and experts, with a gradient of weights that may cover an exchange.
TrainingGraph ThereAndBack() {
  TrainingGraph graph = Layer();
  const auto add = [&](const std::string& id, InstructionOp op, const std::string& input, const std::string& forward) {
    Instruction& one = graph.instructions.emplace_back(Make(id, op, {input}));
    one.phase = Pass::kBackward;
    one.forward = forward;
    one.output_bytes = {1024};
  };
  add("combine.dx", InstructionOp::kCombine, "norm.y", "combine");
  add("back.dx", InstructionOp::kAllToAll, "combine.dx.y", "back");
  add("experts.dx", InstructionOp::kExpert, "back.dx.y", "experts");
  add("experts.dw", InstructionOp::kExpert, "back.dx.y", "experts");
  add("there.dx", InstructionOp::kAllToAll, "experts.dx.y", "there");
  add("x.dx", InstructionOp::kMatmul, "there.dx.y", "x");
  graph.instructions[10].weight_gradient = true;
  return graph;
}

std::vector<std::string> CutOrderAnd(std::vector<std::string> back) {
  back.insert(back.begin(), kCutOrder.begin(), kCutOrder.end());
  return back;
}

TEST(StepTasksTest, WhatGoesBackOverARangeIsCutAlongWithIt) {
  const TrainingGraph graph = ThereAndBack();
  const std::vector<std::string> order =
      CutOrderAnd({"combine.dx#1", "combine.dx#2", "back.dx#1", "back.dx#2", "experts.dx#1", "experts.dw#1",
                   "experts.dx#2", "experts.dw#2", "there.dx#1", "there.dx#2", "x.dx"});
  const auto tasks = BuildStepTasks(graph, CutInTwo(CutAxis::kSamples, "dispatch", "combine", order));
  ASSERT_TRUE(tasks.ok()) << tasks.status().message();
  EXPECT_THAT(Before(*tasks, "combine.dx#1"), ElementsAre("norm"));
  EXPECT_THAT(Before(*tasks, "back.dx#2"), ElementsAre("combine.dx#2"));
  EXPECT_THAT(Before(*tasks, "experts.dw#1"), ElementsAre("back.dx#1"));
  EXPECT_THAT(Before(*tasks, "x.dx"), ElementsAre("there.dx#2"));
  EXPECT_EQ(StepOf(*tasks, "back.dx#1").work.at(0).size, 2048);
  EXPECT_EQ(StepOf(*tasks, "experts.dw#2").time_s, 4);
  // Rows go back where they came from: nobody counts them, and nothing is put together.
  EXPECT_EQ(tasks->tasks.size(), order.size() + 4 + 1);
}

TEST(StepTasksTest, AWeightGradientThatCoversAnAllToAllStaysWhole) {
  const TrainingGraph graph = ThereAndBack();
  LancetAnswer plan = CutInTwo(CutAxis::kSamples, "dispatch", "combine",
                               CutOrderAnd({"combine.dx#1", "combine.dx#2", "back.dx#1", "back.dx#2", "experts.dx#1",
                                            "experts.dx#2", "there.dx#1", "experts.dw", "there.dx#2", "x.dx"}));
  plan.weight_gradients = {{"experts.dw", "there.dx"}};
  const auto tasks = BuildStepTasks(graph, plan);
  ASSERT_TRUE(tasks.ok()) << tasks.status().message();
  EXPECT_THAT(Before(*tasks, "experts.dw"), ElementsAre("back.dx#2"));  // The last of its parts.
  EXPECT_EQ(StepOf(*tasks, "experts.dw").time_s, 8);
  plan.order.back() = "x.dx#1";  // Which no range cuts.
  EXPECT_THAT(BuildStepTasks(graph, plan).status().message(), HasSubstr("x.dx#1"));
}

TEST(StepTasksTest, ACutAlongTheCapacitySendsNoCounts) {
  const TrainingGraph graph = Layer();
  const auto tasks = BuildStepTasks(graph, CutInTwo(CutAxis::kCapacity, "there", "back",
                                                    {"x", "dispatch", "there#1", "there#2", "experts#1", "experts#2",
                                                     "back#1", "back#2", "combine", "norm"}));
  ASSERT_TRUE(tasks.ok()) << tasks.status().message();
  EXPECT_THAT(Names(*tasks), Not(Contains(HasSubstr("counts"))));
  EXPECT_THAT(Before(*tasks, "combine"), ElementsAre("back#join"));
}

// A task carries what was planned: along samples the busiest rank's rows, along the capacity half of the slots.
TEST(StepTasksTest, PartsOfARoutedLayerAreTheBusiestRanks) {
  TrainingGraph graph = Layer();
  graph.workload.emplace();
  graph.workload->layer = {.batch = 1, .sequence_length = 64, .experts = 8, .top_k = 1, .capacity_factor = 1};
  graph.workload->layout = {.expert_parallel = 4};
  for (Instruction& one : graph.instructions) one.part_times_s = {8, 5};
  const double share = PartRows(*graph.workload).ShareOfWhole(2);
  EXPECT_GT(share, 0.5);
  const auto along_samples = BuildStepTasks(graph, CutInTwo(CutAxis::kSamples, "dispatch", "combine", kCutOrder));
  ASSERT_TRUE(along_samples.ok()) << along_samples.status().message();
  EXPECT_NEAR(StepOf(*along_samples, "there#1").work.at(0).size, 4096 * share, 1e-9);
  EXPECT_NEAR(StepOf(*along_samples, "experts#2").work.at(0).size, 1e6 * share, 1e-6);
  EXPECT_EQ(StepOf(*along_samples, "experts#2").time_s, 5);
  const auto along_capacity = BuildStepTasks(graph, CutInTwo(CutAxis::kCapacity, "there", "back",
                                                             {"x", "dispatch", "there#1", "there#2", "experts#1",
                                                              "experts#2", "back#1", "back#2", "combine", "norm"}));
  ASSERT_TRUE(along_capacity.ok()) << along_capacity.status().message();
  EXPECT_EQ(StepOf(*along_capacity, "there#1").work.at(0).size, 2048);
  EXPECT_EQ(StepOf(*along_capacity, "experts#2").work.at(0).size, 5e5);
  EXPECT_NEAR(*StepOf(*along_capacity, "experts#2").time_s, 8 - 3 * 0.5 / (1 - share), 1e-12);
}

TEST(StepTasksTest, TheBackwardPassReadsPartsWhereTheyLie) {
  TrainingGraph graph = Layer();
  graph.instructions.back().phase = Pass::kBackward;
  const auto tasks = BuildStepTasks(graph, CutInTwo(CutAxis::kSamples, "dispatch", "combine", kCutOrder));
  ASSERT_TRUE(tasks.ok()) << tasks.status().message();
  EXPECT_THAT(Before(*tasks, "norm"), ElementsAre("x", "combine#2"));
}

TEST(StepTasksTest, CollectivesRunOnTheStreamThatTheyName) {
  TrainingGraph graph = Layer();
  Instruction sum = {.id = "sum", .op = InstructionOp::kAllReduce, .inputs = {"norm.y"}};
  sum.bytes = 1e6;
  sum.group_size = 4;
  sum.ranks_per_node = 2;
  graph.instructions.push_back(sum);
  sum.id = "other";
  sum.stream = StreamKind::kCopy;
  graph.instructions.push_back(sum);
  ASSERT_TRUE(ValidateTrainingGraph(graph).ok());
  const StepTasks tasks = StepTaskBuilder(graph).Build({}, GivenOrder(graph));
  EXPECT_EQ(tasks.graph.tasks[7].stream, StreamKind::kIntraNode);
  EXPECT_EQ(tasks.graph.tasks[8].stream, StreamKind::kCopy);
  EXPECT_EQ(tasks.graph.tasks[7].kind, TaskKind::kAllReduce);
}

// It has a stream of its own, and goes as the all-to-all of two ranks in which each sends the other as much.
TEST(StepTasksTest, AMessageToAnotherStageIsAnExchangeOfTwoRanks) {
  TrainingGraph graph = Layer();
  Instruction send = {.id = "send", .op = InstructionOp::kSend, .time_s = 8, .inputs = {"norm.y"}};
  send.bytes = 1000;
  send.group_size = 2;
  send.ranks_per_node = 1;
  graph.instructions.push_back(send);
  ASSERT_TRUE(ValidateTrainingGraph(graph).ok());
  const StepTasks tasks = StepTaskBuilder(graph).Build({}, GivenOrder(graph));
  const Task& task = tasks.graph.tasks[7];
  EXPECT_EQ(task.stream, StreamKind::kCopy);
  EXPECT_EQ(task.kind, TaskKind::kAllToAll);
  EXPECT_EQ(task.size, 2000);
  const CollectiveKey pair = {.collective = Collective::kAllToAll, .group = {2, 1}};
  EXPECT_THAT(StepOf(tasks, "send").work, ElementsAre(Work{pair, 2000}));
  // Parts of a range are sent one by one, each behind its own.
  LancetAnswer plan =
      CutInTwo(CutAxis::kSamples, "norm", "send",
               {"x", "dispatch", "there", "experts", "back", "combine", "norm#1", "norm#2", "send#1", "send#2"});
  const auto cut = BuildStepTasks(graph, plan);
  ASSERT_TRUE(cut.ok()) << cut.status().message();
  EXPECT_THAT(Before(*cut, "send#1"), ElementsAre("norm#1"));
  EXPECT_THAT(StepOf(*cut, "send#2").work, ElementsAre(Work{pair, 1000}));
}

std::string ErrorOf(const LancetAnswer& plan) {
  const TrainingGraph graph = Layer();
  return BuildStepTasks(graph, plan).status().message();
}

TEST(StepTasksTest, PlansThatNoStreamCanRunAreRefusedByName) {
  auto order = kCutOrder;
  std::swap(order[3], order[5]);
  EXPECT_THAT(ErrorOf(CutInTwo(CutAxis::kSamples, "dispatch", "combine", order)),
              HasSubstr("experts before there, which it reads, expected producers first"));
  order = kCutOrder;
  order[4] = "there#1";
  EXPECT_THAT(ErrorOf(CutInTwo(CutAxis::kSamples, "dispatch", "combine", order)), HasSubstr("for the second time"));
  order[4] = "there#3";
  EXPECT_THAT(ErrorOf(CutInTwo(CutAxis::kSamples, "dispatch", "combine", order)),
              HasSubstr("rules.lancet.order[4]: found there#3"));
  order[4] = "there";
  EXPECT_THAT(ErrorOf(CutInTwo(CutAxis::kSamples, "dispatch", "combine", order)), HasSubstr("found there,"));
  order.pop_back();
  EXPECT_THAT(ErrorOf(CutInTwo(CutAxis::kSamples, "dispatch", "combine", order)),
              HasSubstr("found 11 launches, expected 12"));
  EXPECT_THAT(ErrorOf(CutInTwo(CutAxis::kSamples, "dispatch", "nothing", kCutOrder)),
              HasSubstr("rules.lancet.partitions[0]"));
  LancetAnswer twice = CutInTwo(CutAxis::kSamples, "dispatch", "combine", kCutOrder);
  twice.partitions.push_back(twice.partitions.front());
  EXPECT_THAT(ErrorOf(twice), HasSubstr("partitions[1]"));
}

TEST(StepTasksTest, FieldsThatAnInstructionCannotHaveAreRefused) {
  const auto error = [](auto change) {
    TrainingGraph graph = Layer();
    change(graph.instructions);
    return ValidateTrainingGraph(graph).message();
  };
  using Instructions = std::vector<Instruction>;
  EXPECT_THAT(error([](Instructions& all) { all[2].stream = StreamKind::kCompute; }),
              HasSubstr("instructions[2] (there).stream"));
  EXPECT_THAT(error([](Instructions& all) { all[3].stream = StreamKind::kCopy; }), HasSubstr("(experts).stream"));
  EXPECT_THAT(error([](Instructions& all) { all[3].counts_bytes = 8; }), HasSubstr("countsBytes"));
  EXPECT_EQ(error([](Instructions& all) { all[2].op = InstructionOp::kSend, all[2].counts_bytes.reset(); }),
            "instructions[2] (there).groupSize: found 4, expected 2 for a SEND, which is to one rank");
  EXPECT_THAT(error([](Instructions& all) {
                all[2].op = InstructionOp::kSend, all[2].group_size = 2, all[2].counts_bytes.reset();
              }),
              IsEmpty());
  EXPECT_THAT(error([](Instructions& all) { all[3].work[0].size = 0; }), HasSubstr("work[0].size"));
  EXPECT_THAT(error([](Instructions& all) { all[3].work[0].key = CollectiveKey(); }), HasSubstr("expected a kernel"));
  EXPECT_THAT(error([](Instructions& all) { all[2].work = all[3].work; }), HasSubstr("(there).work"));
  EXPECT_THAT(error([](Instructions& all) { all[3].output_bytes = {1, 2}; }), HasSubstr("outputBytes"));
  EXPECT_THAT(error([](Instructions& all) { all[3].id = "there#join"; }), HasSubstr("a part of"));
  EXPECT_THAT(error([](Instructions&) {}), IsEmpty());
}

}  // namespace
}  // namespace moeplan
