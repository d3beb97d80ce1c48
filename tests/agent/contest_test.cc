// What made-up runs say of a workload's candidates.
#include "agent/compare/contest.h"

#include <gtest/gtest.h>

#include <cmath>

namespace moeplan::agent {
namespace {

Contender ContenderOf(Family family, int graph, double predicted_s, double measured_s) {
  return {.plan = {.knobs = {.family = family},
                   .predicted_time_s = predicted_s,
                   .low_s = 0.9 * predicted_s,
                   .high_s = 1.1 * predicted_s},
          .ready = graph,
          .measured_s = measured_s};
}

// S2 chosen; O1 was the fastest of the first rounds, as was a second plan with the same graph.
Contest FourContenders() {
  Contest contest;
  contest.contenders = {ContenderOf(Family::kParmS2, 0, 1.0, 1.2), ContenderOf(Family::kMontaO1, 1, 1.1, 1.0),
                        ContenderOf(Family::kMontaO2, 1, 1.1, 1.0), ContenderOf(Family::kBaseline, 2, 3.0, 2.5),
                        ContenderOf(Family::kBaselineTp, 3, 2.0, 2.2)};
  contest.finalists = FinalistsOf(contest.contenders);
  return contest;
}

TEST(ContestTest, EqualGraphsRunOnceAndShareTheMedian) {
  Contest contest = FourContenders();
  EXPECT_EQ(DistinctGraphs(contest.contenders), (std::vector{0, 1, 2, 3}));
  SetMeasured(contest.contenders, {1, 3}, {{5, 9, 7}, {4, 2}});
  EXPECT_EQ(contest.contenders[0].measured_s, 1.2) << "did not run again";
  EXPECT_EQ(contest.contenders[1].measured_s, 7);
  EXPECT_EQ(contest.contenders[2].measured_s, 7);
  EXPECT_EQ(contest.contenders[4].measured_s, 3);
}

TEST(ContestTest, TheChosenMeetsTheFastestUnlessTheyAreOneGraph) {
  Contest contest = FourContenders();
  EXPECT_EQ(contest.finalists, (std::vector<size_t>{0, 1}));
  contest.contenders[0].ready = 1;
  EXPECT_EQ(FinalistsOf(contest.contenders), (std::vector<size_t>{0}));
}

TEST(ContestTest, TheLastRoundsGiveRegretErrorAndSpeedup) {
  Contest contest = FourContenders();
  contest.final_times_s = {{1.2, 1.3, 1.25}, {0.9, 1.0, 1.1}};
  const v1::ValidatedWorkload judged = Judge("w", contest);
  EXPECT_EQ(judged.name(), "w");
  EXPECT_EQ(judged.chosen().schedule(), v1::Schedule::PARM_S2);
  EXPECT_DOUBLE_EQ(judged.chosen().measured_time_s(), 1.25);
  EXPECT_DOUBLE_EQ(judged.prediction_error(), 0.2);        // |1 - 1.25| / 1.25
  EXPECT_DOUBLE_EQ(judged.regret(), 0.25);                 // 1.25 / 1 - 1
  EXPECT_DOUBLE_EQ(judged.speedup_over_baseline(), 1.76);  // 2.2 / 1.25, of the faster baseline.
  ASSERT_EQ(judged.candidates_size(), 5);
  EXPECT_DOUBLE_EQ(judged.candidates(2).measured_time_s(), 1) << "the graph of a finalist";
  EXPECT_DOUBLE_EQ(judged.candidates(3).measured_time_s(), 2.5);
}

TEST(ContestTest, NobodyRegretsAChoiceThatTurnsOutTheFastest) {
  Contest contest = FourContenders();
  contest.final_times_s = {{0.8}, {1.0}};
  EXPECT_EQ(Judge("w", contest).regret(), 0);
  contest.contenders = {ContenderOf(Family::kParmS2, 0, 1, 1)};
  contest.finalists = {0};
  contest.final_times_s = {{0.8}};
  const v1::ValidatedWorkload alone = Judge("w", contest);
  EXPECT_EQ(alone.regret(), 0);
  EXPECT_EQ(alone.speedup_over_baseline(), 0) << "there is no baseline";
}

v1::ValidatedWorkload Validated(double error, double regret, double speedup, std::vector<double> measured_s) {
  v1::ValidatedWorkload workload;
  workload.set_prediction_error(error);
  workload.set_regret(regret);
  workload.set_speedup_over_baseline(speedup);
  for (const double time_s : measured_s) {
    v1::MeasuredCandidate& candidate = *workload.add_candidates();
    candidate.set_low_s(1);
    candidate.set_high_s(2);
    candidate.set_measured_time_s(time_s);
  }
  return workload;
}

TEST(ContestTest, AGridIsSummedUpOverWorkloadsAndCoverageOverCandidates) {
  v1::ValidationReport report;
  *report.add_workloads() = Validated(0.1, 0, 2, {1, 2, 2.1});
  *report.add_workloads() = Validated(0.3, 0.06, 8, {0.9});
  *report.add_workloads() = Validated(0.2, 0.03, 0, {1.5});  // Without a baseline.
  Summarise(report);
  EXPECT_DOUBLE_EQ(report.prediction_error_p50(), 0.2);
  EXPECT_DOUBLE_EQ(report.prediction_error_p95(), 0.3);  // The third of three is the nearest rank.
  EXPECT_DOUBLE_EQ(report.regret_mean(), 0.03);
  EXPECT_DOUBLE_EQ(report.regret_max(), 0.06);
  EXPECT_DOUBLE_EQ(report.coverage(), 3.0 / 5);
  EXPECT_DOUBLE_EQ(report.speedup_over_baseline_mean(), 4);  // √(2·8)
}

}  // namespace
}  // namespace moeplan::agent
