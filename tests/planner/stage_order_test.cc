#include "planner/search/stage_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <random>

#include "models/timeline/timeline.h"
#include "tests/models/hand_made_graph.h"
#include "tests/planner/chunk_order.h"
#include "tests/test_seed.h"

namespace moeplan::planner {
namespace {

using ::testing::ElementsAre;

constexpr Lane kComp = Lane::kCompute, kComm = Lane::kCommunication;
constexpr int kPlenty = 1000000;  // Nodes.
constexpr double kRounding = 1e-11;

// ---- Plain references.

// The end of the timeline that the executor's own model of streams gives the order.
double PlayedAsTaskGraph(const std::vector<ChunkStage>& stages, int chunks, const StageOrder& order) {
  HandMadeGraph graph;
  std::vector<TaskPrice> prices;
  std::vector<std::vector<TaskId>> before(chunks);
  for (const auto& [stage, chunk] : order) {
    const StreamKind stream = stages[stage].lane == kComp ? StreamKind::kCompute : StreamKind::kInterNode;
    before[chunk] = {graph.Add(TaskKind::kOther, stream, before[chunk])};
    prices.push_back({.time_s = stages[stage].time_s});
  }
  return Play(graph.graph(), prices).total_s;
}

// The smallest end over every interleaving of the chunks, each chunk told from the others.
class AllOrders {
 public:
  AllOrders(const std::vector<ChunkStage>& stages, int chunks)
      : stages_(stages), next_(chunks, 0), done_s_(chunks, 0) {}

  double BestS() {
    Extend(0);
    return best_s_;
  }

 private:
  void Extend(double end_s) {
    bool complete = true;
    for (size_t chunk = 0; chunk < next_.size(); ++chunk) {
      if (next_[chunk] == static_cast<int>(stages_.size())) continue;
      complete = false;
      const ChunkStage& stage = stages_[next_[chunk]];
      double& free_s = free_s_[stage.lane == kComm];
      const double free_before_s = free_s, done_before_s = done_s_[chunk];
      free_s = done_s_[chunk] = std::max(free_s, done_s_[chunk]) + stage.time_s;
      ++next_[chunk];
      Extend(std::max(end_s, free_s));
      --next_[chunk];
      free_s = free_before_s;
      done_s_[chunk] = done_before_s;
    }
    if (complete) best_s_ = std::min(best_s_, end_s);
  }

  const std::vector<ChunkStage>& stages_;
  std::vector<int> next_;
  std::vector<double> done_s_;
  std::array<double, 2> free_s_ = {};
  double best_s_ = std::numeric_limits<double>::infinity();
};

// ---- Random cases.

int AnyInt(std::mt19937_64& engine, int low, int high) { return std::uniform_int_distribution(low, high)(engine); }

// Half of the cases in whole seconds, which tie and vanish often; the others anything from short to long.
std::vector<ChunkStage> AnyStages(std::mt19937_64& engine, const std::vector<Lane>& lanes) {
  const bool whole = AnyInt(engine, 0, 1) == 0;
  std::vector<ChunkStage> stages;
  for (const Lane lane : lanes) {
    const double time_s =
        whole ? AnyInt(engine, 0, 4) : std::pow(10, std::uniform_real_distribution(-1.0, 1.0)(engine));
    stages.push_back({"s" + std::to_string(stages.size()), lane, time_s});
  }
  return stages;
}

const std::vector<Lane> kScheMoe = {kComp, kComm, kComp, kComp, kComp, kComm, kComp};

std::vector<Lane> AnyLanes(std::mt19937_64& engine, int count) {
  std::vector<Lane> lanes;
  for (int i = 0; i < count; ++i) lanes.push_back(AnyInt(engine, 0, 1) == 0 ? kComp : kComm);
  return lanes;
}

StageOrder AnyOrder(std::mt19937_64& engine, int stages, int chunks) {
  StageOrder order;
  std::vector<int> next(chunks, 0);
  while (static_cast<int>(order.size()) < stages * chunks) {
    const int chunk = AnyInt(engine, 0, chunks - 1);
    if (next[chunk] < stages) order.push_back({next[chunk]++, chunk});
  }
  return order;
}

StageOrder ChunkByChunk(int stages, int chunks) {
  StageOrder order;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int stage = 0; stage < stages; ++stage) order.push_back({stage, chunk});
  }
  return order;
}

std::string Describe(const std::vector<ChunkStage>& stages, int chunks) {
  std::string text = std::to_string(chunks) + " chunks:";
  for (const ChunkStage& stage : stages) text += (stage.lane == kComp ? " C" : " A") + std::to_string(stage.time_s);
  return text;
}

StageOrderOutcome SearchFromScratch(const std::vector<ChunkStage>& stages, int chunks, int budget_nodes = kPlenty) {
  return SearchOrder(stages, chunks, ChunkByChunk(static_cast<int>(stages.size()), chunks), budget_nodes);
}

void ExpectBestOfAll(const std::vector<ChunkStage>& stages, int chunks) {
  const StageOrderOutcome found = SearchFromScratch(stages, chunks);
  const double best_s = AllOrders(stages, chunks).BestS();
  ASSERT_NEAR(found.time_s, best_s, kRounding * best_s) << Describe(stages, chunks);
  ASSERT_EQ(found.stop_reason, StopReason::kProvedBest) << Describe(stages, chunks);
  ASSERT_EQ(found.time_floor_s, found.time_s);
  ASSERT_NEAR(PlayedAsTaskGraph(stages, chunks, found.order), best_s, kRounding * best_s) << Describe(stages, chunks);
}

// ---- PlayOrder.

TEST(PlayOrderTest, ATaskWaitsForItsStreamAndItsChunk) {
  // Two chunks through C 2 s, A 3 s, C 1 s, the second chunk's first stage in between:
  //   compute 0-2 C.1, 2-4 C.2, 5-6 C'.1 (after A.1), 8-9 C'.2;  communication 2-5 A.1, 5-8 A.2 (its stream is busy).
  const std::vector<ChunkStage> stages = {{"C", kComp, 2}, {"A", kComm, 3}, {"C'", kComp, 1}};
  const StageOrder order = {{0, 0}, {1, 0}, {0, 1}, {2, 0}, {1, 1}, {2, 1}};
  const PlayedStages played = PlayOrder(stages, 2, order);
  EXPECT_THAT(played.start_s, ElementsAre(0, 2, 2, 5, 5, 8));
  EXPECT_EQ(played.time_s, 9);
}

TEST(PlayOrderTest, AgreesWithTheTimelineOfTaskGraphs) {
  std::mt19937_64 engine(TestSeed());
  for (int i = 0; i < 2000; ++i) {
    const int count = AnyInt(engine, 1, 8), chunks = AnyInt(engine, 1, 9);
    const auto stages = AnyStages(engine, AnyLanes(engine, count));
    const StageOrder order = AnyOrder(engine, count, chunks);
    const double time_s = PlayedAsTaskGraph(stages, chunks, order);
    ASSERT_NEAR(PlayOrder(stages, chunks, order).time_s, time_s, kRounding * time_s) << Describe(stages, chunks);
  }
}

// ---- SearchOrder.

TEST(SearchOrderTest, LeavesTheComputeStreamIdleWhereThatPays) {
  // Two chunks through C 1 s, A 0.5 s, A' 1 s, with a task of no time between A and A'. Had C.2 followed C.1 at once,
  // that task would have to wait until 2. Best: C.1 0-1, A.1 1-1.5, both then free A'.1 1.5-2.5 and C.2 1.5-2.5, A.2
  // 2.5-3, A'.2 3-4.
  const std::vector<ChunkStage> stages = {{"C", kComp, 1}, {"A", kComm, 0.5}, {"E", kComp, 0}, {"A'", kComm, 1}};
  const StageOrderOutcome found = SearchFromScratch(stages, 2);
  EXPECT_EQ(found.time_s, 4);
  EXPECT_EQ(found.stop_reason, StopReason::kProvedBest);
  EXPECT_EQ(found.time_floor_s, 4);
}

TEST(SearchOrderTest, IsAsGoodAsTheBestOfAllOrders) {
  std::mt19937_64 engine(TestSeed());
  for (int i = 0; i < 1500; ++i) ExpectBestOfAll(AnyStages(engine, kScheMoe), 2);
  for (int i = 0; i < 1500; ++i) ExpectBestOfAll(AnyStages(engine, AnyLanes(engine, AnyInt(engine, 1, 6))), 2);
  for (int i = 0; i < 100; ++i) ExpectBestOfAll(AnyStages(engine, AnyLanes(engine, 4)), 3);
  for (int i = 0; i < 5; ++i) ExpectBestOfAll(AnyStages(engine, {kComm, kComp, kComm}), 4);
}

// The smallest end over every interleaving of the tasks of any stages.
class AllStageOrders {
 public:
  explicit AllStageOrders(const std::vector<OrderedStage>& stages) : stages_(stages), end_s_(stages.size()) {
    for (size_t stage = 0; stage < stages.size(); ++stage) end_s_[stage].resize(stages[stage].tasks, -1);
  }

  double BestS() {
    Extend(0);
    return best_s_;
  }

 private:
  // When what the task needs is done; negative: something has not started.
  double ReadyS(size_t stage, int index) const {
    double ready_s = 0;
    for (const StageNeed& need : stages_[stage].needs) {
      for (int other = 0; other < stages_[need.stage].tasks; ++other) {
        if (!need.all && other != index) continue;
        if (end_s_[need.stage][other] < 0) return -1;
        ready_s = std::max(ready_s, end_s_[need.stage][other]);
      }
    }
    return ready_s;
  }

  void Extend(double end_s) {
    bool complete = true;
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      for (int index = 0; index < stages_[stage].tasks; ++index) {
        if (end_s_[stage][index] >= 0) continue;
        complete = false;
        const double ready_s = ReadyS(stage, index);
        if (ready_s < 0) continue;
        double& free_s = free_s_[stages_[stage].lane];
        const double before_s = free_s;
        free_s = end_s_[stage][index] = std::max(ready_s, free_s) + stages_[stage].time_s;
        Extend(std::max(end_s, free_s));
        free_s = before_s;
        end_s_[stage][index] = -1;
      }
    }
    if (complete) best_s_ = std::min(best_s_, end_s);
  }

  const std::vector<OrderedStage>& stages_;
  std::vector<std::vector<double>> end_s_;
  std::array<double, kMostOrderedLanes> free_s_ = {};
  double best_s_ = std::numeric_limits<double>::infinity();
};

// Some with one task, the others with `chunks`, at most `most` in all; each needs any of those before.
std::vector<OrderedStage> AnyBranchingStages(std::mt19937_64& engine, int chunks, int most) {
  const bool whole = AnyInt(engine, 0, 1) == 0;
  std::vector<OrderedStage> stages;
  for (int tasks = 0; tasks < most;) {
    OrderedStage stage = {.lane = AnyInt(engine, 0, kMostOrderedLanes - 1),
                          .time_s = whole ? AnyInt(engine, 0, 4) : std::uniform_real_distribution(0.1, 5.0)(engine),
                          .tasks = std::min(most - tasks, AnyInt(engine, 0, 2) == 0 ? 1 : chunks)};
    for (int other = 0; other < static_cast<int>(stages.size()); ++other) {
      if (AnyInt(engine, 0, 2) == 0) continue;
      const bool may_match = stages[other].tasks == stage.tasks;
      stage.needs.push_back({.stage = other, .all = !may_match || AnyInt(engine, 0, 4) == 0});
    }
    tasks += stage.tasks;
    stages.push_back(stage);
  }
  return stages;
}

StageOrder StageByStage(const std::vector<OrderedStage>& stages) {
  StageOrder order;
  for (int stage = 0; stage < static_cast<int>(stages.size()); ++stage) {
    for (int index = 0; index < stages[stage].tasks; ++index) order.push_back({stage, index});
  }
  return order;
}

TEST(SearchStageOrderTest, IsAsGoodAsTheBestOfAllOrdersWhereStagesBranch) {
  std::mt19937_64 engine(TestSeed());
  int improved = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto stages = AnyBranchingStages(engine, AnyInt(engine, 1, 3), /*most=*/7);
    const StageOrder known = StageByStage(stages);
    const StageOrderOutcome found = SearchStageOrder(stages, known, kPlenty);
    const double best_s = AllStageOrders(stages).BestS();
    ASSERT_NEAR(found.time_s, best_s, kRounding * best_s) << "case " << i;
    ASSERT_EQ(found.stop_reason, StopReason::kProvedBest) << "case " << i;
    ASSERT_NEAR(PlayStages(stages, found.order).time_s, best_s, kRounding * best_s) << "case " << i;
    if (best_s < PlayStages(stages, known).time_s * (1 - kRounding)) ++improved;
  }
  EXPECT_GT(improved, 100) << "the cases have nothing to search for";
}

TEST(SearchOrderTest, AtEightChunksNoRandomOrderIsBetterAndEveryCaseIsProved) {
  std::mt19937_64 engine(TestSeed());
  int most_nodes = 0;
  for (int i = 0; i < 50; ++i) {
    const auto stages = AnyStages(engine, kScheMoe);
    const StageOrderOutcome found = SearchFromScratch(stages, 8);
    EXPECT_EQ(found.stop_reason, StopReason::kProvedBest) << Describe(stages, 8);
    EXPECT_NEAR(PlayedAsTaskGraph(stages, 8, found.order), found.time_s, kRounding * found.time_s);
    for (int tried = 0; tried < 100; ++tried) {
      EXPECT_GE(PlayOrder(stages, 8, AnyOrder(engine, 7, 8)).time_s, found.time_s * (1 - kRounding));
    }
    most_nodes = std::max(most_nodes, found.nodes);
  }
  std::cout << "at most " << most_nodes << " nodes" << std::endl;
}

TEST(SearchOrderTest, AnOrderThatIsKnownToBeBestIsKept) {
  // 3 chunks through C 1 s and A 2 s: nothing ends before 1 + 3·2 = 7, which every chunk in turn reaches.
  const std::vector<ChunkStage> stages = {{"C", kComp, 1}, {"A", kComm, 2}};
  const StageOrder known = {{0, 0}, {0, 1}, {1, 0}, {0, 2}, {1, 1}, {1, 2}};
  const StageOrderOutcome found = SearchOrder(stages, 3, known, kPlenty);
  EXPECT_EQ(found.time_s, 7);
  EXPECT_EQ(found.order, known);
  EXPECT_EQ(found.nodes, 0);
}

TEST(SearchOrderTest, OutOfBudgetItSaysBelowWhatNoOrderEnds) {
  std::mt19937_64 engine(TestSeed());
  int unproved = 0;
  for (int i = 0; i < 200; ++i) {
    const auto stages = AnyStages(engine, kScheMoe);
    const StageOrder known = ChunkByChunk(7, 5);
    const double best_s = SearchFromScratch(stages, 5).time_s;
    for (const int budget_nodes : {1, 35 * 3, 35 * 20}) {
      const StageOrderOutcome found = SearchOrder(stages, 5, known, budget_nodes);
      EXPECT_LE(found.time_floor_s, best_s * (1 + kRounding)) << Describe(stages, 5);
      EXPECT_GE(found.time_s, best_s * (1 - kRounding)) << Describe(stages, 5);
      EXPECT_LE(found.time_s, PlayOrder(stages, 5, known).time_s);
      if (found.stop_reason == StopReason::kProvedBest) {
        EXPECT_NEAR(found.time_s, best_s, kRounding * best_s) << Describe(stages, 5);
      } else {
        EXPECT_EQ(found.stop_reason, StopReason::kOutOfBudget);
        ++unproved;
      }
    }
  }
  EXPECT_GT(unproved, 0) << "the budgets are too large for the test";
}

TEST(SearchOrderTest, TheSameArgumentsGiveTheSameOrder) {
  const std::vector<ChunkStage> stages = {{"C1", kComp, 1}, {"A1", kComm, 0.5}, {"D1", kComp, 0.25}, {"E", kComp, 1},
                                          {"C2", kComp, 1}, {"A2", kComm, 3},   {"D2", kComp, 0.25}};
  EXPECT_EQ(SearchFromScratch(stages, 4).order, SearchFromScratch(stages, 4).order);
}

}  // namespace
}  // namespace moeplan::planner
