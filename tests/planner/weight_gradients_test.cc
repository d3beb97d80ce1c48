#include "planner/lancet/weight_gradients.h"
#include "tests/test_seed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <random>

namespace moeplan::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kRounding = 1e-9;

int AnyInt(std::mt19937_64& engine, int low, int high) { return std::uniform_int_distribution(low, high)(engine); }

// All gradients fit all all-to-alls.
OverlapProblem AllFit(std::vector<double> exchange_s, std::vector<double> gradient_s) {
  OverlapProblem problem = {.exchange_s = std::move(exchange_s), .gradient_s = std::move(gradient_s)};
  std::vector<int> everywhere;
  for (int j = 0; j < static_cast<int>(problem.exchange_s.size()); ++j) {
    problem.exchanges.push_back(j);
    everywhere.push_back(j);
  }
  for (int i = 0; i < static_cast<int>(problem.gradient_s.size()); ++i) problem.gradients.push_back(i);
  problem.fits.assign(problem.gradients.size(), everywhere);
  return problem;
}

OverlapProblem AnyProblem(std::mt19937_64& engine, int exchanges, int gradients) {
  const auto any_s = [&] { return AnyInt(engine, 0, 1) ? AnyInt(engine, 1, 9) : AnyInt(engine, 1, 900) / 100.0; };
  OverlapProblem problem = AllFit({}, {});
  for (int j = 0; j < exchanges; ++j) {
    problem.exchanges.push_back(j);
    problem.exchange_s.push_back(any_s());
  }
  for (int i = 0; i < gradients; ++i) {
    std::vector<int> fits;
    for (int j = 0; j < exchanges; ++j) {
      if (AnyInt(engine, 0, 2) > 0) fits.push_back(j);
    }
    if (fits.empty()) continue;
    problem.gradients.push_back(i);
    problem.gradient_s.push_back(any_s());
    problem.fits.push_back(fits);
  }
  return problem;
}

double BruteForceS(const OverlapProblem& problem) {
  std::vector<double> beside_s(problem.exchanges.size(), 0);
  double best_s = 0;
  std::function<void(size_t)> place = [&](size_t i) {
    if (i == problem.gradients.size()) {
      double sum_s = 0;
      for (size_t j = 0; j < beside_s.size(); ++j) sum_s += std::min(beside_s[j], problem.exchange_s[j]);
      best_s = std::max(best_s, sum_s);
      return;
    }
    place(i + 1);
    for (const int j : problem.fits[i]) {
      beside_s[j] += problem.gradient_s[i];
      place(i + 1);
      beside_s[j] -= problem.gradient_s[i];
    }
  };
  place(0);
  return best_s;
}

TEST(WeightGradientsTest, GreedyTakesTheBestFitForEachAllToAllInTurn) {
  // The first of 10 takes 6 (4 away), then a 5 (1 from the 4 left); the second is left with the other 5: 10 + 5. Better
  // is 5 + 5 and 6, all there is.
  const OverlapProblem problem = AllFit({10, 10}, {6, 5, 5});
  const OverlapChoice greedy = BestFitGreedy(problem);
  EXPECT_THAT(greedy, ElementsAre(0, 0, 1));
  EXPECT_EQ(OverlapS(problem, greedy), 15);
  EXPECT_EQ(OverlapBoundS(problem), 16);
  const OverlapOutcome improved = ImproveOverlap(problem, greedy, 1000);
  EXPECT_EQ(improved.overlap_s, 16);
  EXPECT_EQ(improved.stop_reason, StopReason::kProvedBest);
  EXPECT_EQ(OverlapS(problem, improved.choice), 16);
}

TEST(WeightGradientsTest, ABudgetOfNothingKeepsTheGreedyAndSaysHowFarItMayBe) {
  const OverlapProblem problem = AllFit({10, 10}, {6, 5, 5});
  const OverlapOutcome outcome = ImproveOverlap(problem, BestFitGreedy(problem), 0);
  EXPECT_EQ(outcome.overlap_s, 15);
  EXPECT_EQ(outcome.bound_s, 16);
  EXPECT_EQ(outcome.stop_reason, StopReason::kOutOfBudget);
}

TEST(WeightGradientsTest, TheBoundIsACut) {
  // Gradients of 7 fit the first of 3 alone, those of 2 only the second of 9: 3 + 2.
  OverlapProblem problem = AllFit({3, 9}, {7, 2});
  problem.fits = {{0}, {1}};
  EXPECT_EQ(OverlapBoundS(problem), 5);
}

TEST(WeightGradientsTest, SmallProblemsAreSolvedAsByBruteForce) {
  std::mt19937_64 engine(TestSeed());
  int improved = 0, unproved = 0;
  for (int round = 0; round < 3000; ++round) {
    const OverlapProblem problem = AnyProblem(engine, AnyInt(engine, 0, 3), AnyInt(engine, 0, 6));
    const OverlapChoice greedy = BestFitGreedy(problem);
    const OverlapOutcome outcome = ImproveOverlap(problem, greedy, 1000000);
    const double best_s = BruteForceS(problem), greedy_s = OverlapS(problem, greedy);
    ASSERT_EQ(outcome.stop_reason, StopReason::kProvedBest);
    ASSERT_NEAR(outcome.overlap_s, best_s, kRounding) << round;
    ASSERT_NEAR(OverlapS(problem, outcome.choice), best_s, kRounding) << round;
    ASSERT_GE(OverlapBoundS(problem), best_s - kRounding) << round;
    ASSERT_LE(greedy_s, best_s + kRounding);
    // Stopped early, the gap that is told holds the one there is.
    const OverlapOutcome hasty = ImproveOverlap(problem, greedy, AnyInt(engine, 0, 20));
    ASSERT_LE(greedy_s, hasty.overlap_s + kRounding) << round;
    ASSERT_LE(hasty.overlap_s, best_s + kRounding) << round;
    ASSERT_GE(hasty.bound_s, best_s - kRounding) << round;
    ASSERT_TRUE(hasty.stop_reason == StopReason::kOutOfBudget || hasty.overlap_s >= best_s - kRounding) << round;
    unproved += hasty.stop_reason == StopReason::kOutOfBudget;
    for (size_t i = 0; i < outcome.choice.size(); ++i) {
      if (outcome.choice[i] == kUnassigned) continue;
      ASSERT_TRUE(std::ranges::binary_search(problem.fits[i], outcome.choice[i]));
    }
    improved += outcome.overlap_s > greedy_s + kRounding;
  }
  EXPECT_GT(improved, 50);  // Or the search would not be worth having.
  EXPECT_GT(unproved, 10);
}

TEST(WeightGradientsTest, TheSearchNeverFallsBehindAndNeverPassesTheBound) {
  std::mt19937_64 engine(TestSeed());
  for (int round = 0; round < 100; ++round) {
    const OverlapProblem problem = AnyProblem(engine, AnyInt(engine, 4, 24), AnyInt(engine, 10, 150));
    const OverlapChoice greedy = BestFitGreedy(problem);
    const OverlapOutcome outcome = ImproveOverlap(problem, greedy, 5000);
    ASSERT_GE(outcome.overlap_s, OverlapS(problem, greedy) - kRounding);
    ASSERT_LE(outcome.overlap_s, outcome.bound_s + kRounding);
    ASSERT_LE(outcome.nodes, 5000);
    ASSERT_NEAR(OverlapS(problem, outcome.choice), outcome.overlap_s, kRounding);
  }
}

TEST(WeightGradientsTest, NestedSetsHaveATightBound) {
  // As in a backward pass: the gradients of a layer fit all all-to-alls behind it. 20 all-to-alls of 2, each with a
  // gradient of 1 that fits it and what follows: all 20 are covered, and no more, the all-to-alls being 40.
  OverlapProblem problem = AllFit(std::vector<double>(20, 2.0), std::vector<double>(20, 1.0));
  for (int i = 0; i < 20; ++i) problem.fits[i].erase(problem.fits[i].begin(), problem.fits[i].begin() + i);
  EXPECT_EQ(OverlapBoundS(problem), 20);
  // With gradients of 3 the all-to-alls are the limit.
  problem.gradient_s.assign(20, 3.0);
  EXPECT_EQ(OverlapBoundS(problem), 40);
}

TEST(WeightGradientsTest, LabelsFollowPathsNotPlaces) {
  // a -> x -> w1; w0 -> a; w2 apart; w3 apart in the forward pass; z takes no time, but what it needs does.
  const auto instruction = [](InstructionOp op, std::vector<int> producers, bool gradient, double time_s = 1) {
    return TimedInstruction{.op = op,
                            .phase = Pass::kBackward,
                            .weight_gradient = gradient,
                            .producers = std::move(producers),
                            .part_s = {time_s}};
  };
  TimedGraph graph;
  graph.instructions = {instruction(InstructionOp::kMatmul, {}, true),         // 0: w0
                        instruction(InstructionOp::kAllToAll, {0}, false, 5),  // 1: a
                        instruction(InstructionOp::kMatmul, {1}, false),       // 2: x
                        instruction(InstructionOp::kMatmul, {2}, true),        // 3: w1
                        instruction(InstructionOp::kMatmul, {}, true),         // 4: w2
                        instruction(InstructionOp::kMatmul, {}, true),         // 5: w3
                        instruction(InstructionOp::kMatmul, {}, true, 0),      // 6: z
                        instruction(InstructionOp::kAllToAll, {}, false, 5)};  // 7: forward
  graph.instructions[5].phase = Pass::kForward;
  graph.instructions[7].phase = Pass::kForward;
  const OverlapProblem problem = LabelWeightGradients(graph);
  EXPECT_THAT(problem.exchanges, ElementsAre(1));
  EXPECT_THAT(problem.gradients, ElementsAre(4, 6));
  EXPECT_THAT(problem.fits, ElementsAre(ElementsAre(0), ElementsAre(0)));
  EXPECT_THAT(LabelWeightGradients(TimedGraph()).gradients, IsEmpty());
}

}  // namespace
}  // namespace moeplan::planner
