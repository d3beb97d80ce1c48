#include "planner/search/task_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "models/schedule/launch_order.h"
#include "tests/models/hand_made_graph.h"
#include "tests/test_seed.h"

namespace moeplan::planner {
namespace {

constexpr int kPlenty = 1000000;
constexpr double kRounding = 1e-9;

// Tasks whose sizes are their seconds, under a profile of straight lines through zero.
Profile SecondsProfile(double copy_slowdown = 1) {
  const auto line = [](double s) { return MakeCostModel(AlphaBeta{0, s}); };
  Profile profile;
  profile.kernels.push_back({{.kernel = Kernel::kExpertGemm}, line(1)});
  profile.kernels.push_back({{.kernel = Kernel::kDeviceCopy}, line(1)});
  profile.kernels.push_back(
      {{.kernel = Kernel::kExpertGemm, .contention = Contention::kWithCopy}, line(copy_slowdown)});
  return profile;
}

TaskOrderOutcome Search(const TaskGraph& graph, const Profile& profile, int budget_nodes = kPlenty) {
  const GraphPrices prices = PriceGraph(graph, profile);
  EXPECT_THAT(prices.missing, ::testing::IsEmpty());
  CostIndex index(profile);
  return SearchTaskOrder(graph, prices.tasks, Play(graph, prices.tasks), index, budget_nodes);
}

double TimeS(const TaskGraph& graph, const Profile& profile) {
  return Play(graph, PriceGraph(graph, profile).tasks).total_s;
}

// The smallest time over every launch order.
double BestOfAllOrdersS(const TaskGraph& graph, const Profile& profile) {
  std::vector<TaskId> order;
  std::vector<bool> launched(graph.tasks.size(), false);
  double best_s = std::numeric_limits<double>::infinity();
  const auto extend = [&](const auto& self) -> void {
    if (order.size() == graph.tasks.size()) {
      best_s = std::min(best_s, TimeS(Relaunched(graph, order), profile));
      return;
    }
    for (TaskId task = 0; task < static_cast<TaskId>(graph.tasks.size()); ++task) {
      const auto& needs = graph.tasks[task].dependencies;
      if (launched[task] || !std::ranges::all_of(needs, [&](TaskId before) { return launched[before]; })) continue;
      if (task >= graph.first_backward && static_cast<TaskId>(order.size()) < graph.first_backward) continue;
      launched[task] = true;
      order.push_back(task);
      self(self);
      order.pop_back();
      launched[task] = false;
    }
  };
  extend(extend);
  return best_s;
}

TaskGraph AnyTasks(std::mt19937_64& engine, int count) {
  const auto any = [&](int low, int high) { return std::uniform_int_distribution(low, high)(engine); };
  HandMadeGraph graph;
  for (TaskId task = 0; task < count; ++task) {
    std::vector<TaskId> after;
    for (TaskId before = 0; before < task; ++before) {
      if (any(0, 2) == 0) after.push_back(before);
    }
    if (any(0, 1) == 0) {
      graph.Expert(any(1, 5), after);
    } else {
      graph.Copy(any(1, 5), after);
    }
  }
  TaskGraph tasks = graph.graph();
  tasks.first_backward = any(0, 1) == 0 ? count : any(0, count);
  return tasks;
}

TEST(TaskOrderTest, WithoutContentionItIsTheBestOfAllOrders) {
  std::mt19937_64 engine(TestSeed());
  const Profile profile = SecondsProfile();
  int improved = 0;
  for (int i = 0; i < 2500; ++i) {
    const TaskGraph graph = AnyTasks(engine, 6);
    const TaskOrderOutcome found = Search(graph, profile);
    const double best_s = BestOfAllOrdersS(graph, profile);
    ASSERT_NEAR(found.time_s, best_s, kRounding * best_s) << "case " << i;
    ASSERT_NEAR(found.time_floor_s, best_s, kRounding * best_s) << "case " << i;
    if (found.order.empty()) {
      ASSERT_NEAR(TimeS(graph, profile), best_s, kRounding * best_s);
    } else {
      ASSERT_NEAR(TimeS(Relaunched(graph, found.order), profile), best_s, kRounding * best_s);
      ++improved;
    }
  }
  EXPECT_GT(improved, 20);
}

TEST(TaskOrderTest, WithContentionItIsNeverWorseThanTheOwnOrderAndNeverBelowTheFloor) {
  std::mt19937_64 engine(TestSeed());
  const Profile profile = SecondsProfile(/*copy_slowdown=*/1.7);
  for (int i = 0; i < 2500; ++i) {
    const TaskGraph graph = AnyTasks(engine, 6);
    const TaskOrderOutcome found = Search(graph, profile);
    const double best_s = BestOfAllOrdersS(graph, profile);
    ASSERT_LE(found.time_s, TimeS(graph, profile));
    ASSERT_GE(found.time_s, best_s * (1 - kRounding)) << "case " << i;
    ASSERT_LE(found.time_floor_s, best_s * (1 + kRounding)) << "case " << i;
  }
}

TEST(TaskOrderTest, OutOfBudgetTheFloorStillHolds) {
  std::mt19937_64 engine(TestSeed());
  const Profile profile = SecondsProfile();
  int unfinished = 0;
  for (int i = 0; i < 2500; ++i) {
    const TaskGraph graph = AnyTasks(engine, 6);
    const TaskOrderOutcome found = Search(graph, profile, /*budget_nodes=*/1);
    ASSERT_LE(found.time_floor_s, BestOfAllOrdersS(graph, profile) * (1 + kRounding)) << "case " << i;
    if (found.time_floor_s < found.time_s * (1 - kRounding)) ++unfinished;
  }
  EXPECT_GT(unfinished, 5) << "the budget is too large for the test";
}

// ---- LaunchedBy.

TaskGraph TwoStreams() {
  HandMadeGraph graph;
  const TaskId first = graph.Expert(1);
  graph.Expert(2, {first});
  graph.Copy(3);
  TaskGraph tasks = graph.graph();
  for (size_t i = 0; i < tasks.tasks.size(); ++i) tasks.tasks[i].name = std::string(1, static_cast<char>('a' + i));
  tasks.first_backward = 3;
  return tasks;
}

std::string ErrorOf(const std::vector<std::string>& names) {
  return LaunchedBy(TwoStreams(), Phase::kForward, names).status().message();
}

TEST(LaunchedByTest, TasksMoveAndKeepWhatTheyDependOn) {
  const StatusOr<TaskGraph> graph = LaunchedBy(TwoStreams(), Phase::kForward, std::vector<std::string>{"c", "a", "b"});
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(graph->tasks[0].name, "c");
  EXPECT_EQ(graph->tasks[1].name, "a");
  EXPECT_EQ(graph->tasks[2].name, "b");
  EXPECT_THAT(graph->tasks[2].dependencies, ::testing::ElementsAre(1));
}

TEST(LaunchedByTest, WhatIsNoOrderIsRefused) {
  EXPECT_EQ(ErrorOf({"b", "a", "c"}), "order: found task b before a, expected tasks after those they depend on");
  EXPECT_EQ(ErrorOf({"a", "b"}), "order: found no task c, expected every task of the schedule");
  EXPECT_EQ(ErrorOf({"a", "b", "c", "a"}), "order: found task a twice, expected each task once");
  EXPECT_EQ(ErrorOf({"a", "b", "c", "d"}),
            "order: found task d, expected the tasks of the schedule, its chunks and the phase alone");
}

TEST(LaunchedByTest, ForwardTasksStayBeforeBackwardOnes) {
  TaskGraph graph = TwoStreams();
  graph.first_backward = 2;  // c is backward.
  const StatusOr<TaskGraph> training = LaunchedBy(graph, Phase::kTraining, std::vector<std::string>{"c", "a", "b"});
  ASSERT_TRUE(training.ok());
  EXPECT_EQ(training->tasks[2].name, "c");
  const StatusOr<TaskGraph> backward = LaunchedBy(graph, Phase::kBackward, std::vector<std::string>{"c"});
  ASSERT_TRUE(backward.ok());
  EXPECT_EQ(*backward, graph);
}

}  // namespace
}  // namespace moeplan::planner
