// The virtual clock and the planner's timeline are written apart, one from streams, events and collectives, the other
// from dependencies. With the priced times as task times they must agree to the bit.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>

#include "executor/virtual/virtual_clock.h"
#include "models/measurement/candidates.h"
#include "models/schedule/gradient_slices.h"
#include "models/schedule/schedules.h"
#include "models/schedule/streams.h"
#include "models/text.h"
#include "models/timeline/price.h"
#include "models/timeline/timeline.h"
#include "tests/executor/layer_on_rank.h"
#include "tests/test_seed.h"

namespace moeplan::executor {
namespace {

using testing::Case;

// Random costs for whatever `graph` is charged for, some of them nothing; no contention.
Profile RandomProfile(const TaskGraph& graph, std::mt19937_64& random) {
  Profile profile;
  for (const CostKey& key : PriceGraph(graph, Profile{}).keys) {
    const double alpha_s = random() % 4 == 0 ? 0 : std::uniform_real_distribution(1e-6, 1e-3)(random);
    const CostModel model = MakeCostModel(AlphaBeta{alpha_s, std::uniform_real_distribution(0.0, 1e-6)(random)});
    if (const auto* collective = std::get_if<CollectiveKey>(&key)) profile.collectives.push_back({*collective, model});
    if (const auto* kernel = std::get_if<KernelKey>(&key)) profile.kernels.push_back({*kernel, model});
  }
  return profile;
}

TaskTime TimesOf(const TaskGraph& graph, const GraphPrices& prices) {
  std::map<std::string, double, std::less<>> time_s;
  for (size_t i = 0; i < graph.tasks.size(); ++i) time_s[graph.tasks[i].name] = prices.tasks[i].time_s;
  return [time_s = std::move(time_s)](int, std::string_view task) {
    const std::string_view name =
        task.substr(0, task.size() - (task.ends_with(kInsideNodes) ? kInsideNodes.size() : 0));
    return time_s.find(name)->second;
  };
}

// The timeline of each rank.
std::vector<Timeline> RunVirtually(const Case& test, const TaskGraph& graph, TaskTime task_time) {
  const int ranks = Ranks(test.cluster);
  std::vector<Timeline> timelines(ranks);
  testing::MakeVirtualRunner(std::move(task_time))->Run(ranks, [&](const testing::Rank& rank) {
    const auto layer = std::make_shared<testing::LayerOnRank>(test, rank);
    const std::shared_ptr<GraphRunner> runner = layer->Prepare(graph);
    const auto check = [=, &timelines](const Status& status) {
      EXPECT_TRUE(status.ok()) << status.message();
      timelines[layer->rank.rank] = runner->LastTimeline(test.workload.phase);
    };
    return std::vector{testing::Round{[=] { runner->Enqueue(test.workload.phase); }, check}};
  });
  return timelines;
}

void ExpectSameTimeline(const Case& test, const TaskGraph& graph, std::mt19937_64& random) {
  const GraphPrices prices = PriceGraph(graph, RandomProfile(graph, random));
  ASSERT_TRUE(prices.missing.empty());
  const Timeline expected = TimelineOf(graph, Play(graph, prices.tasks));
  const std::vector<Timeline> timelines = RunVirtually(test, graph, TimesOf(graph, prices));
  for (size_t rank = 0; rank < timelines.size(); ++rank) {
    for (size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE(StrCat("rank ", rank, " task ", expected[i].task));
      EXPECT_EQ(timelines[rank][i].start_s, expected[i].start_s);
      EXPECT_EQ(timelines[rank][i].end_s, expected[i].end_s);
      EXPECT_EQ(timelines[rank][i], expected[i]);
    }
  }
}

TEST(VirtualTimelineTest, EveryFamilysGraphTakesThePlayedTimesOnEveryRank) {
  std::mt19937_64 random(TestSeed());
  std::set<Family> families;
  std::set<AllToAllAlgorithm> algorithms;
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    const Case test = testing::RandomCase(random);
    for (const Knobs& knobs : testing::AllKnobs(test)) {
      SCOPED_TRACE(StrCat("case ", i, ": ", Describe(test), " ", testing::Describe(knobs)));
      ExpectSameTimeline(test, *BuildSchedule(knobs, test.workload, test.cluster), random);
      families.insert(knobs.family);
      algorithms.insert(knobs.all_to_all);
    }
  }
  EXPECT_EQ(families.size(), AllFrom(Family::kBaseline).size());
  EXPECT_EQ(algorithms.size(), 4);
}

// Up to three slices, anywhere.
TaskGraph WithSlices(const TaskGraph& graph, std::mt19937_64& random) {
  const StreamKind stream = StreamOf(Group::kDenseReplicas, graph.layout, graph.gpus_per_node);
  std::vector<GradientSlice> slices;
  const TaskId end = static_cast<TaskId>(graph.tasks.size());
  for (TaskId before = graph.first_backward; before <= end && slices.size() < 3; ++before) {
    if (before < end && (graph.tasks[before].stream != stream || random() % 2 == 0)) continue;
    const TaskId after = static_cast<TaskId>(random() % (before + 1)) - 1;
    slices.push_back({.after_task = after < 0 ? "" : graph.tasks[after].name,
                      .before_task = before == end ? "" : graph.tasks[before].name,
                      .bytes = 4.0 * static_cast<double>(1 + random() % 100)});
  }
  return *WithGradientSlices(graph, slices);
}

TEST(VirtualTimelineTest, SlicesOfGradientsTakeThePlayedTimesOnEveryRank) {
  std::mt19937_64 random(TestSeed());
  int exchanged = 0;
  for (int i = 0; i < 100 && !HasFailure(); ++i) {
    const Case test = testing::RandomCase(random);
    if (test.workload.phase == Phase::kForward) continue;
    for (const Knobs& knobs : testing::AllKnobs(test)) {
      SCOPED_TRACE(StrCat("case ", i, ": ", Describe(test), " ", testing::Describe(knobs)));
      const TaskGraph graph = *BuildSchedule(knobs, test.workload, test.cluster);
      ExpectSameTimeline(test, WithSlices(graph, random), random);
      exchanged += GroupSize(Group::kDenseReplicas, graph.layout) > 1 ? 1 : 0;
    }
  }
  EXPECT_GT(exchanged, 20);
}

// 2 nodes of 2 ranks, all of them one EP group: between nodes a second, inside nodes three.
TEST(VirtualTimelineTest, ATaskByPipeEndsWithTheSlowerOfItsTwoLinks) {
  Case test;
  test.cluster = {.nodes = 2, .gpus_per_node = 2};
  test.workload.layer = {.batch = 1,
                         .sequence_length = 8,
                         .model_dim = 4,
                         .hidden_dim = 4,
                         .experts = 4,
                         .top_k = 1,
                         .capacity_factor = 1.0,
                         .bytes_per_element = 4};
  test.workload.layout.expert_parallel = 4;
  test.workload = *ResolveWorkload(test.workload, test.cluster);
  const Knobs knobs = {.family = Family::kBaseline, .all_to_all = AllToAllAlgorithm::kPipe};
  const auto time_s = [](int, std::string_view task) {
    return task.ends_with(kInsideNodes) ? 3.0 : task.ends_with("a2a") ? 1.0 : 0.0;
  };
  for (const Timeline& timeline : RunVirtually(test, *BuildSchedule(knobs, test.workload, test.cluster), time_s)) {
    int exchanges = 0;
    for (const TaskTiming& timing : timeline) {
      if (timing.kind != TaskKind::kAllToAll) continue;
      EXPECT_EQ(timing.end_s - timing.start_s, 3) << timing.task;
      ++exchanges;
    }
    EXPECT_EQ(exchanges, 2);
  }
}

}  // namespace
}  // namespace moeplan::executor
