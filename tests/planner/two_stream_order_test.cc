#include "planner/search/two_stream_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>

#include "models/timeline/timeline.h"
#include "tests/models/hand_made_graph.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

using ::testing::ElementsAre;

constexpr Lane kComp = Lane::kCompute, kComm = Lane::kCommunication;
constexpr int kPlenty = 1000000;  // Nodes.
constexpr double kRounding = 1e-11;

// ---- Plain references.

// The end of the timeline that the executor's own model of streams gives the order.
double PlayedAsTaskGraph(const std::vector<ChunkStage>& stages, int chunks, const ChunkOrder& order) {
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

ChunkOrder AnyOrder(std::mt19937_64& engine, int stages, int chunks) {
  ChunkOrder order;
  std::vector<int> next(chunks, 0);
  while (static_cast<int>(order.size()) < stages * chunks) {
    const int chunk = AnyInt(engine, 0, chunks - 1);
    if (next[chunk] < stages) order.push_back({next[chunk]++, chunk});
  }
  return order;
}

ChunkOrder ChunkByChunk(int stages, int chunks) {
  ChunkOrder order;
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

OrderSearchOutcome SearchFromScratch(const std::vector<ChunkStage>& stages, int chunks, int budget_nodes = kPlenty) {
  return SearchOrder(stages, chunks, ChunkByChunk(static_cast<int>(stages.size()), chunks), budget_nodes);
}

void ExpectBestOfAll(const std::vector<ChunkStage>& stages, int chunks) {
  const OrderSearchOutcome found = SearchFromScratch(stages, chunks);
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
  const ChunkOrder order = {{0, 0}, {1, 0}, {0, 1}, {2, 0}, {1, 1}, {2, 1}};
  const PlayedOrder played = PlayOrder(stages, 2, order);
  EXPECT_THAT(played.start_s, ElementsAre(0, 2, 2, 5, 5, 8));
  EXPECT_EQ(played.time_s, 9);
}

TEST(PlayOrderTest, AgreesWithTheTimelineOfTaskGraphs) {
  std::mt19937_64 engine(TestSeed());
  for (int i = 0; i < 2000; ++i) {
    const int count = AnyInt(engine, 1, kMostStages), chunks = AnyInt(engine, 1, 9);
    const auto stages = AnyStages(engine, AnyLanes(engine, count));
    const ChunkOrder order = AnyOrder(engine, count, chunks);
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
  const OrderSearchOutcome found = SearchFromScratch(stages, 2);
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

TEST(SearchOrderTest, AtEightChunksNoRandomOrderIsBetterAndEveryCaseIsProved) {
  std::mt19937_64 engine(TestSeed());
  int most_nodes = 0;
  for (int i = 0; i < 50; ++i) {
    const auto stages = AnyStages(engine, kScheMoe);
    const OrderSearchOutcome found = SearchFromScratch(stages, 8);
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
  const ChunkOrder known = {{0, 0}, {0, 1}, {1, 0}, {0, 2}, {1, 1}, {1, 2}};
  const OrderSearchOutcome found = SearchOrder(stages, 3, known, kPlenty);
  EXPECT_EQ(found.time_s, 7);
  EXPECT_EQ(found.order, known);
  EXPECT_EQ(found.nodes, 0);
}

TEST(SearchOrderTest, OutOfBudgetItSaysBelowWhatNoOrderEnds) {
  std::mt19937_64 engine(TestSeed());
  int unproved = 0;
  for (int i = 0; i < 200; ++i) {
    const auto stages = AnyStages(engine, kScheMoe);
    const ChunkOrder known = ChunkByChunk(7, 5);
    const double best_s = SearchFromScratch(stages, 5).time_s;
    for (const int budget_nodes : {1, 35 * 3, 35 * 20}) {
      const OrderSearchOutcome found = SearchOrder(stages, 5, known, budget_nodes);
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
}  // namespace moeplan
