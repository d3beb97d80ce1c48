#include "models/plan/build_plan.h"
#include "models/schedule/gradient_slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/schedule/schedules.h"
#include "models/text.h"

namespace moeplan {
namespace {

using ::testing::ElementsAre;

// 2 nodes of 2 ranks, one MP group on each: EP 2 and the 2 replicas of dense layers between nodes.
constexpr Cluster kCluster = {.nodes = 2, .gpus_per_node = 2};
Workload WorkloadOf(Phase phase) {
  Workload workload;
  workload.layer = {.batch = 1,
                    .sequence_length = 64,
                    .model_dim = 8,
                    .hidden_dim = 16,
                    .experts = 4,
                    .top_k = 2,
                    .capacity_factor = 1.0};
  workload.layout = {.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2};
  workload.phase = phase;
  return *ResolveWorkload(workload, kCluster);
}

TaskGraph Baseline(Phase phase) { return *BuildSchedule({.family = Family::kBaselineTp}, WorkloadOf(phase), kCluster); }

std::vector<std::string> NamesOf(const TaskGraph& graph) {
  std::vector<std::string> names;
  for (const Task& task : graph.tasks) names.push_back(task.name);
  return names;
}

TEST(GradientSlicesTest, SlicesAreLaunchedBeforeTheirTaskAndWaitForTheOther) {
  const TaskGraph plain = Baseline(Phase::kTraining);
  std::vector<std::string> expected = NamesOf(plain);
  std::vector<TaskId> between_nodes;
  for (TaskId task = plain.first_backward; task < static_cast<TaskId>(plain.tasks.size()); ++task) {
    if (plain.tasks[task].stream == StreamKind::kInterNode) between_nodes.push_back(task);
  }
  ASSERT_EQ(between_nodes.size(), 2u);
  const std::string first = expected[between_nodes[0]], second = expected[between_nodes[1]];
  const std::vector<GradientSlice> slices = {{.before_task = first, .bytes = 2},
                                             {.after_task = first, .before_task = second, .bytes = 4},
                                             {.after_task = expected.back(), .bytes = 6}};
  const auto sliced = WithGradientSlices(plain, slices);
  ASSERT_TRUE(sliced.ok()) << sliced.status().message();
  expected.insert(expected.begin() + between_nodes[1], "dense_gradients.2");
  expected.insert(expected.begin() + between_nodes[0], "dense_gradients.1");
  expected.push_back("dense_gradients.3");
  EXPECT_EQ(NamesOf(*sliced), expected);
  EXPECT_EQ(sliced->first_backward, plain.first_backward);
  // All others as they were: same operations, and dependencies of the same names.
  const auto dependencies_of = [](const TaskGraph& graph, const Task& task) {
    std::vector<std::string> names;
    for (const TaskId before : task.dependencies) names.push_back(graph.tasks[before].name);
    return names;
  };
  std::vector<std::vector<std::string>> of_slices;
  std::vector<double> sizes;
  size_t original = 0;
  for (const Task& task : sliced->tasks) {
    if (task.name.starts_with("dense_gradients")) {
      of_slices.push_back(dependencies_of(*sliced, task));
      sizes.push_back(task.size);
      EXPECT_EQ(task.kind, TaskKind::kAllReduce);
      EXPECT_EQ(task.stream, StreamKind::kInterNode);
      EXPECT_EQ(ExpectedBytes(sliced->buffers[std::get<CollectiveOp>(task.op).out]), task.size);
      continue;
    }
    const Task& before = plain.tasks[original++];
    EXPECT_TRUE(task.op == before.op) << task.name;
    EXPECT_EQ(dependencies_of(*sliced, task), dependencies_of(plain, before)) << task.name;
  }
  EXPECT_THAT(of_slices, ElementsAre(ElementsAre(), ElementsAre(first), ElementsAre(plain.tasks.back().name)));
  EXPECT_THAT(sizes, ElementsAre(2, 4, 6));
}

TEST(GradientSlicesTest, ASliceBeforeTheFirstBackwardTaskIsABackwardTask) {
  TaskGraph graph = Baseline(Phase::kTraining);
  while (graph.tasks[graph.first_backward].stream != StreamKind::kInterNode) ++graph.first_backward;
  const std::vector<GradientSlice> slices = {{.before_task = graph.tasks[graph.first_backward].name, .bytes = 2}};
  const TaskGraph sliced = *WithGradientSlices(graph, slices);
  EXPECT_EQ(sliced.tasks[sliced.first_backward].name, "dense_gradients.1");
  EXPECT_EQ(PartOf(sliced, Phase::kForward).tasks.size(), PartOf(graph, Phase::kForward).tasks.size());
}

TEST(GradientSlicesTest, ThePartOfTheWholeIsThePartWithSlices) {
  const TaskGraph whole = Baseline(Phase::kTraining);
  const TaskGraph part = PartOf(whole, Phase::kBackward);
  const std::vector<GradientSlice> slices = {{.after_task = part.tasks.front().name, .bytes = 2}};
  EXPECT_TRUE(PartOf(*WithGradientSlices(whole, slices), Phase::kBackward) == *WithGradientSlices(part, slices));
}

TEST(GradientSlicesTest, WrongSlicesAreNamed) {
  const TaskGraph graph = Baseline(Phase::kTraining);
  const auto error = [&](const std::vector<GradientSlice>& slices) {
    return WithGradientSlices(graph, slices).status().message();
  };
  const std::string forward = graph.tasks.front().name, backward = graph.tasks.back().name;
  EXPECT_EQ(error({{.bytes = 3}}),
            "gradients.slices[0].bytes: found 3, expected whole elements of 2 bytes, at least one");
  EXPECT_EQ(error({{.bytes = 2}, {.bytes = 0}}),
            "gradients.slices[1].bytes: found 0, expected whole elements of 2 bytes, at least one");
  for (const std::string& no_place : {std::string("nothing"), forward, backward}) {
    EXPECT_EQ(error({{.before_task = no_place, .bytes = 2}}),
              StrCat("gradients.slices[0].beforeTask: found ", no_place,
                     ", expected a backward task of the schedule on INTER_NODE"));
  }
  EXPECT_EQ(error({{.after_task = "nothing", .bytes = 2}}),
            "gradients.slices[0].afterTask: found nothing, expected a task of the schedule that is launched before the "
            "slice");
  std::string place;
  for (const Task& task : graph.tasks) {
    if (task.stream == StreamKind::kInterNode) place = task.name;
  }
  EXPECT_EQ(error({{.after_task = backward, .before_task = place, .bytes = 2}}),
            StrCat("gradients.slices[0].afterTask: found ", backward,
                   ", expected a task of the schedule that is launched before the slice"));
  EXPECT_EQ(error({{.bytes = 2}, {.before_task = place, .bytes = 2}}),
            StrCat("gradients.slices[1].beforeTask: found ", place, ", expected slices in launch order"));
  const std::vector<GradientSlice> one = {{.bytes = 2}};
  EXPECT_EQ(WithGradientSlices(Baseline(Phase::kForward), one).status().message(),
            "gradients.slices[0].beforeTask: found a forward pass, expected a schedule with backward tasks");
}

TEST(GradientSlicesTest, APlanIsBuiltWithItsSlices) {
  Workload workload = WorkloadOf(Phase::kTraining);
  workload.gradient_bytes = 8;
  Plan plan = {.knobs = {.family = Family::kBaselineTp}};
  EXPECT_EQ(BuildPlan(plan, workload, kCluster).status().message(),
            "gradients.slices: found 0 bytes in all, expected 8, which is what the workload's gradientBytes have to "
            "exchange");
  plan.gradients.slices = {{.bytes = 6}, {.bytes = 2}};
  EXPECT_EQ(BuildPlan(plan, workload, kCluster)->tasks.size(), Baseline(Phase::kTraining).tasks.size() + 2);
  workload.gradient_bytes = 0;
  EXPECT_FALSE(BuildPlan(plan, workload, kCluster).ok());
  plan.gradients.slices.clear();
  EXPECT_TRUE(*BuildPlan(plan, workload, kCluster) == Baseline(Phase::kTraining));
}

}  // namespace
}  // namespace moeplan
