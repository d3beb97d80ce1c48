#include "models/timeline/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "models/timeline/critical_path.h"
#include "models/timeline/pipeline_time.h"
#include "tests/models/hand_made_graph.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

constexpr StreamKind kStreams[] = {StreamKind::kCompute, StreamKind::kIntraNode, StreamKind::kInterNode,
                                   StreamKind::kCopy};

TaskPrice Costs(double time_s) { return {.time_s = time_s, .low_s = time_s, .high_s = time_s}; }

TaskPrice Costs(double time_s, Contention imposes, Contention slowed_by = Contention::kNone, double slowdown = 1) {
  TaskPrice price = Costs(time_s);
  price.imposes = imposes;
  price.slowdown[static_cast<int>(slowed_by)] = slowdown;
  return price;
}

// An all-to-all of 3 s on one stream and experts of 2 s on another; each graph adds what it needs.
struct TwoStreams {
  TwoStreams() {
    all_to_all = graph.Add(TaskKind::kAllToAll, StreamKind::kInterNode);
    expert = graph.Add(TaskKind::kExpert, StreamKind::kCompute);
  }
  HandMadeGraph graph;
  TaskId all_to_all, expert;
};

TEST(TimelineTest, StreamsRunSideBySideAndTasksOfAStreamInLaunchOrder) {
  // Inter: 0–3, then 3–4. Compute: 0–2, then 3–8 (waits for the first all-to-all), then 8–9 although it could start
  // at 2.
  TwoStreams two;
  two.graph.Add(TaskKind::kAllToAll, StreamKind::kInterNode);
  two.graph.Add(TaskKind::kExpert, StreamKind::kCompute, {two.all_to_all});
  two.graph.Add(TaskKind::kCombine, StreamKind::kCompute);
  const std::vector prices = {Costs(3), Costs(2), Costs(1), Costs(5), Costs(1)};
  const PlayedGraph played = Play(two.graph.graph(), prices);
  EXPECT_THAT(played.start_s, ElementsAre(0, 0, 3, 3, 8));
  EXPECT_THAT(played.end_s, ElementsAre(3, 2, 4, 8, 9));
  EXPECT_EQ(played.total_s, 9);
}

TEST(TimelineTest, ExposedCommunicationIsWhatNoComputeTaskHides) {
  // All-to-all 0–3, all-gather 1–5 (after a copy of 1), expert 0–2 on compute. Copies are neither communication nor
  // compute. Communication 3 + 4; exposed from 2 to 5; compute 2.
  TwoStreams two;
  const TaskId copy = two.graph.Add(TaskKind::kCopy, StreamKind::kCopy);
  two.graph.Add(TaskKind::kAllGather, StreamKind::kIntraNode, {copy});
  const std::vector prices = {Costs(3), Costs(2), Costs(1), Costs(4)};
  const PlayedGraph played = Play(two.graph.graph(), prices);
  EXPECT_EQ(played.communication_time_s, 7);
  EXPECT_EQ(played.exposed_communication_s, 3);
  EXPECT_EQ(played.compute_time_s, 2);
}

TEST(TimelineTest, TasksWithoutDurationPassThroughOtherStreamsAtOnce) {
  // 2 s of compute, then a chain of free tasks over three streams, then 1 s: 3 s in all.
  HandMadeGraph graph;
  TaskId last = graph.Add(TaskKind::kExpert, StreamKind::kCompute);
  for (const StreamKind stream : {StreamKind::kCopy, StreamKind::kInterNode, StreamKind::kIntraNode}) {
    last = graph.Add(TaskKind::kOther, stream, {last});
  }
  graph.Add(TaskKind::kCombine, StreamKind::kCompute, {last});
  const PlayedGraph played = Play(graph.graph(), std::vector{Costs(2), Costs(0), Costs(0), Costs(0), Costs(1)});
  EXPECT_THAT(played.end_s, ElementsAre(2, 2, 2, 2, 3));
}

TEST(TimelineTest, ContentionSlowsOnlyWhileBothRun) {
  // The all-to-all (3 s) takes twice as long beside an expert (2 s, not slowed). In 0–2 it does 1 s of its work; the
  // other 2 s run alone: ends at 4.
  TwoStreams two;
  const std::vector prices = {Costs(3, Contention::kWithAllToAll, Contention::kWithExpertGemm, 2),
                              Costs(2, Contention::kWithExpertGemm)};
  EXPECT_THAT(Play(two.graph.graph(), prices).end_s, ElementsAre(4, 2));
}

TEST(TimelineTest, ContentionSlowsBothSides) {
  // Both slow each other: all-to-all 3 s at 1/2, expert 2 s at 1/1.5. The expert ends at 3; the all-to-all has done 1.5
  // and needs 1.5 more alone: 4.5.
  TwoStreams two;
  const std::vector prices = {Costs(3, Contention::kWithAllToAll, Contention::kWithExpertGemm, 2),
                              Costs(2, Contention::kWithExpertGemm, Contention::kWithAllToAll, 1.5)};
  const PlayedGraph played = Play(two.graph.graph(), prices);
  EXPECT_THAT(played.end_s, ElementsAre(DoubleNear(4.5, 1e-12), DoubleNear(3, 1e-12)));
  // Communication 4.5, of which 3 to 4.5 is exposed.
  EXPECT_NEAR(played.communication_time_s, 4.5, 1e-12);
  EXPECT_NEAR(played.exposed_communication_s, 1.5, 1e-12);
}

TEST(TimelineTest, OfSeveralContendersTheWorstCounts) {
  // An all-gather of 6 s beside an expert of 1 s (factor 3) and a copy of 2 s (factor 2). In 0–1 it does 1/3, in 1–2 it
  // does 1/2, and the remaining 6 − 5/6 alone: ends at 2 + 31/6.
  HandMadeGraph graph;
  graph.Add(TaskKind::kAllGather, StreamKind::kIntraNode);
  graph.Add(TaskKind::kExpert, StreamKind::kCompute);
  graph.Add(TaskKind::kCopy, StreamKind::kCopy);
  TaskPrice gather = Costs(6, Contention::kWithAllGather, Contention::kWithExpertGemm, 3);
  gather.slowdown[static_cast<int>(Contention::kWithCopy)] = 2;
  const std::vector prices = {gather, Costs(1, Contention::kWithExpertGemm), Costs(2, Contention::kWithCopy)};
  EXPECT_NEAR(Play(graph.graph(), prices).end_s[0], 2 + 31.0 / 6, 1e-12);
}

TaskPrice CostsOfNetwork(double time_s, double share) {
  TaskPrice price = Costs(time_s, Contention::kWithAllGather);
  price.network_share = share;
  return price;
}

TEST(TimelineTest, CollectivesDivideTheNetworkEvenly) {
  HandMadeGraph graph;
  graph.Add(TaskKind::kAllToAll, StreamKind::kInterNode);
  graph.Add(TaskKind::kAllGather, StreamKind::kIntraNode);
  const auto ends = [&](double share, double other_share) {
    return Play(graph.graph(), std::vector{CostsOfNetwork(3, share), CostsOfNetwork(2, other_share)}).end_s;
  };
  // At half their rates until the shorter ends at 4; the longer has done 2 of 3 s by then.
  EXPECT_THAT(ends(1, 1), ElementsAre(DoubleNear(5, 1e-12), DoubleNear(4, 1e-12)));
  // Who wants no more than a half gets it. The other has half of what it wants until 2, and 2 s left.
  EXPECT_THAT(ends(1, 0.5), ElementsAre(DoubleNear(4, 1e-12), DoubleNear(2, 1e-12)));
  // The other gets what a quarter leaves: it has done 1.5 of its 3 s at 2, and goes on alone.
  EXPECT_THAT(ends(1, 0.25), ElementsAre(DoubleNear(3.5, 1e-12), DoubleNear(2, 1e-12)));
  // There is enough for both, or one crosses nothing.
  EXPECT_THAT(ends(0.5, 0.5), ElementsAre(3, 2));
  EXPECT_THAT(ends(1, 0), ElementsAre(3, 2));
}

TEST(TimelineTest, TheWorseOfWhatWasMeasuredAndWhatIsLeftOfTheNetworkCounts) {
  HandMadeGraph graph;
  graph.Add(TaskKind::kAllToAll, StreamKind::kInterNode);
  graph.Add(TaskKind::kAllGather, StreamKind::kIntraNode);
  TaskPrice first = CostsOfNetwork(3, 1);
  first.slowdown[static_cast<int>(Contention::kWithAllGather)] = 3;
  // The second runs at half its rate until 4, beside which the first does 4/3 at a third, and 5/3 then.
  EXPECT_THAT(Play(graph.graph(), std::vector{first, CostsOfNetwork(2, 1)}).end_s,
              ElementsAre(DoubleNear(4 + 5.0 / 3, 1e-12), DoubleNear(4, 1e-12)));
}

TEST(TimelineTest, AnEmptyGraphTakesNoTime) { EXPECT_EQ(Play(TaskGraph{}, {}).total_s, 0); }

TEST(TimelineTest, NamesComeFromTheGraph) {
  TwoStreams two;
  const Timeline timeline = TimelineOf(two.graph.graph(), Play(two.graph.graph(), std::vector{Costs(3), Costs(2)}));
  EXPECT_THAT(timeline, ElementsAre(TaskTiming{"ALL_TO_ALL.0", TaskKind::kAllToAll, StreamKind::kInterNode, 0, 0, 3},
                                    TaskTiming{"EXPERT.1", TaskKind::kExpert, StreamKind::kCompute, 0, 0, 2}));
}

// ---- Why it ends when it does.

TEST(CriticalPathTest, ATaskIsReleasedByTheLastOfWhatItWaitsFor) {
  // The first graph above: 3 waits for the all-to-all (3 s), not for the expert before it on its stream (2 s); 4 for 3.
  TwoStreams two;
  two.graph.Add(TaskKind::kAllToAll, StreamKind::kInterNode);
  two.graph.Add(TaskKind::kExpert, StreamKind::kCompute, {two.all_to_all});
  two.graph.Add(TaskKind::kCombine, StreamKind::kCompute);
  const PlayedGraph played = Play(two.graph.graph(), std::vector{Costs(3), Costs(2), Costs(1), Costs(5), Costs(1)});
  const std::vector<TaskId> released_by = ReleasedBy(two.graph.graph(), played);
  EXPECT_THAT(released_by, ElementsAre(kNoTask, kNoTask, 0, 0, 3));
  EXPECT_THAT(CriticalPath(released_by, played), ElementsAre(0, 3, 4));
}

TEST(CriticalPathTest, TasksThatEndTogetherAreNotMixedUp) {
  // Both first tasks end at 2, and only the all-to-all lets the combine start: whoever goes by times alone may take the
  // other.
  HandMadeGraph graph;
  const TaskId all_to_all = graph.Add(TaskKind::kAllToAll, StreamKind::kInterNode);
  graph.Add(TaskKind::kAllGather, StreamKind::kIntraNode);
  graph.Add(TaskKind::kCombine, StreamKind::kCompute, {all_to_all});
  const PlayedGraph played = Play(graph.graph(), std::vector{Costs(2), Costs(2), Costs(1)});
  const std::vector<TaskId> released_by = ReleasedBy(graph.graph(), played);
  EXPECT_THAT(released_by, ElementsAre(kNoTask, kNoTask, 0));
  EXPECT_THAT(CriticalPath(released_by, played), ElementsAre(0, 2));
}

TEST(CriticalPathTest, AnEmptyGraphHasNone) { EXPECT_THAT(CriticalPath({}, {}), ElementsAre()); }

// ---- Against independent references on random graphs.

constexpr TaskKind kKinds[] = {TaskKind::kAllToAll, TaskKind::kAllGather, TaskKind::kCopy, TaskKind::kExpert,
                               TaskKind::kOther};

struct RandomCase {
  TaskGraph graph;
  std::vector<TaskPrice> prices;
};

RandomCase MakeRandomCase(std::mt19937& random, int tasks, bool contended) {
  const auto below = [&](int limit) { return std::uniform_int_distribution(0, limit - 1)(random); };
  RandomCase made;
  HandMadeGraph graph;
  for (TaskId id = 0; id < tasks; ++id) {
    std::vector<TaskId> after;
    for (TaskId before = 0; before < id; ++before) {
      if (below(4) == 0) after.push_back(before);
    }
    graph.Add(kKinds[below(5)], kStreams[below(kStreamKinds)], after);
    TaskPrice price = Costs(below(5) * 0.25);
    if (contended) {
      price.imposes = static_cast<Contention>(below(kContentions));
      for (int kind = 1; kind < kContentions; ++kind) price.slowdown[kind] = 1 + below(3) * 0.5;
      price.network_share = below(5) * 0.25;
    }
    made.prices.push_back(price);
  }
  made.graph = graph.graph();
  return made;
}

// Longest path over dependencies and stream order.
std::vector<double> LongestPathEnds(const RandomCase& given) {
  std::vector<double> end_s(given.graph.tasks.size());
  std::array<double, kStreamKinds> stream_free_s{};
  for (size_t i = 0; i < end_s.size(); ++i) {
    const Task& task = given.graph.tasks[i];
    double start_s = stream_free_s[static_cast<int>(task.stream)];
    for (const TaskId before : task.dependencies) start_s = std::max(start_s, end_s[before]);
    end_s[i] = stream_free_s[static_cast<int>(task.stream)] = start_s + given.prices[i].time_s;
  }
  return end_s;
}

TEST(TimelineTest, WithoutContentionEndsAreTheLongestPath) {
  const unsigned seed = 20240611;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    const RandomCase given = MakeRandomCase(random, 1 + round % 30, /*contended=*/false);
    ASSERT_EQ(Play(given.graph, given.prices).end_s, LongestPathEnds(given)) << "round " << round;
  }
}

// The most that one gets: a level that rises until the network is used up, or is high enough for all.
double NetworkLevel(const RandomCase& given, const std::vector<size_t>& running) {
  double low = 0, high = 1;
  for (int halving = 0; halving < 50; ++halving) {
    const double level = (low + high) / 2;
    double used = 0;
    for (const size_t task : running) used += std::min(level, given.prices[task].network_share);
    (used <= 1 ? low : high) = level;
  }
  return high;
}

// Walks time in small steps and moves every running task on by step / slowdown. Knows no events.
std::vector<double> SteppedEnds(const RandomCase& given, double step_s) {
  const size_t count = given.graph.tasks.size();
  std::vector<double> left_s(count), end_s(count, -1);
  for (size_t i = 0; i < count; ++i) left_s[i] = given.prices[i].time_s;
  size_t ended = 0;
  for (long step = 0; ended < count; ++step) {
    const double now_s = step * step_s;
    std::vector<size_t> running;
    for (bool again = true; again;) {  // Free tasks end at once and may let others start.
      again = false;
      running.clear();
      for (const StreamKind stream : kStreams) {
        size_t head = 0;
        while (head < count && (given.graph.tasks[head].stream != stream || end_s[head] >= 0)) ++head;
        if (head == count) continue;
        const auto& before = given.graph.tasks[head].dependencies;
        if (std::any_of(before.begin(), before.end(), [&](TaskId id) { return end_s[id] < 0; })) continue;
        if (left_s[head] <= 1e-12) {
          end_s[head] = now_s;
          ++ended;
          again = true;
        } else {
          running.push_back(head);
        }
      }
    }
    const double level = NetworkLevel(given, running);
    for (const size_t task : running) {
      double slowdown = std::max(1.0, given.prices[task].network_share / level);
      for (const size_t other : running) {
        if (other == task) continue;
        slowdown = std::max(slowdown, given.prices[task].slowdown[static_cast<int>(given.prices[other].imposes)]);
      }
      left_s[task] -= step_s / slowdown;
    }
  }
  return end_s;
}

TEST(TimelineTest, WithContentionEndsAgreeWithATimeStepper) {
  const unsigned seed = 7;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  constexpr double kStepS = 1.0 / 4096;
  for (int round = 0; round < 60; ++round) {
    const RandomCase given = MakeRandomCase(random, 1 + round % 12, /*contended=*/true);
    const std::vector<double> stepped = SteppedEnds(given, kStepS);
    const std::vector<double> played = Play(given.graph, given.prices).end_s;
    for (size_t i = 0; i < played.size(); ++i) {
      // A task is up to a step late in the stepper, and lateness is passed on, grown by at most the slowdowns.
      ASSERT_NEAR(played[i], stepped[i], 40 * kStepS) << "round " << round << ", task " << i;
    }
  }
}

TEST(CriticalPathTest, ItLeadsWithoutAGapFromTheBeginningToTheEnd) {
  const unsigned seed = TestSeed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    const RandomCase given = MakeRandomCase(random, 1 + round % 30, /*contended=*/round % 2 == 0);
    const PlayedGraph played = Play(given.graph, given.prices);
    const std::vector<TaskId> path = CriticalPath(ReleasedBy(given.graph, played), played);
    ASSERT_FALSE(path.empty());
    double now_s = 0;
    for (size_t i = 0; i < path.size(); ++i) {
      const Task& task = given.graph.tasks[path[i]];
      ASSERT_EQ(played.start_s[path[i]], now_s) << "round " << round;
      now_s = played.end_s[path[i]];
      if (i == 0) continue;
      const TaskId before = path[i - 1];
      const bool waits = std::ranges::count(task.dependencies, before) > 0;
      ASSERT_TRUE(waits || given.graph.tasks[before].stream == task.stream) << "round " << round;
    }
    ASSERT_EQ(now_s, played.total_s) << "round " << round;
  }
}

// ---- PipelineTime.

TEST(PipelineTimeTest, SlowestStageRepeatsForEveryExtraChunk) {
  // Stages of 3 and 5 ms, 4 chunks: 3 + 5 for the first, then 3 more at 5 = 23 ms.
  EXPECT_NEAR(PipelineTime(std::array{3e-3, 5e-3}, /*chunks=*/4), 23e-3, 1e-12);
}

TEST(PipelineTimeTest, OneChunkPassesEveryStageOnce) {
  EXPECT_DOUBLE_EQ(PipelineTime(std::array{3.0, 5.0, 1.0}, /*chunks=*/1), 9.0);
}

TEST(PipelineTimeTest, AgreesWithTheTimelineOfItsTasks) {
  // Three stages of 2, 1 and 4 s on three streams, 5 chunks: 7 + 4·4 = 23 s.
  constexpr std::array kStageS = {2.0, 1.0, 4.0};
  HandMadeGraph graph;
  std::vector<TaskPrice> prices;
  for (int chunk = 0; chunk < 5; ++chunk) {
    std::vector<TaskId> before;
    for (int stage = 0; stage < 3; ++stage) {
      before = {graph.Add(TaskKind::kOther, kStreams[stage], before)};
      prices.push_back(Costs(kStageS[stage]));
    }
  }
  EXPECT_EQ(Play(graph.graph(), prices).total_s, 23);
  EXPECT_EQ(PipelineTime(kStageS, 5), 23);
}

}  // namespace
}  // namespace moeplan
