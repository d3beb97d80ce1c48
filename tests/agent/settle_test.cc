// Near ties, settled by made-up runs.
#include "agent/compare/settle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moeplan::agent {
namespace {

using ::testing::HasSubstr;

Contender ContenderOf(Family family, int graph, double predicted_s, double low_s, double high_s) {
  return {.plan = {.knobs = {.family = family}, .predicted_time_s = predicted_s, .low_s = low_s, .high_s = high_s},
          .ready = graph,
          .measured_s = predicted_s};
}

// S2 is chosen, in two pieces or four; S1 comes next.
std::vector<Contender> CloseContenders() {
  std::vector<Contender> contenders = {
      ContenderOf(Family::kParmS2, 0, 1.0, 0.9, 1.1), ContenderOf(Family::kParmS2, 1, 1.02, 0.92, 1.12),
      ContenderOf(Family::kParmS1, 2, 1.05, 0.95, 1.15), ContenderOf(Family::kBaseline, 3, 2, 1.8, 2.2)};
  contenders[1].plan.knobs.partition_degree = 4;
  return contenders;
}

Contest NearTie(Times final_times_s) {
  Contest contest;
  contest.contenders = CloseContenders();
  contest.finalists = {0};
  contest.near_tie = NearTieOf(contest.contenders);
  contest.final_times_s = std::move(final_times_s);
  return contest;
}

TEST(NearTieTest, IsTheRunnerUpOfAnotherFamilyWhoseIntervalMeetsTheChosens) {
  std::vector<Contender> contenders = CloseContenders();
  EXPECT_EQ(NearTieOf(contenders), 2u);
  contenders[2].plan.low_s = 1.11;  // Beyond 1.1.
  EXPECT_EQ(NearTieOf(contenders), std::nullopt);
}

TEST(NearTieTest, IsOfTheSameFamilyWhereNoOtherRuns) {
  std::vector<Contender> contenders = CloseContenders();
  contenders.resize(2);
  EXPECT_EQ(NearTieOf(contenders), 1u);
  contenders[1].ready = contenders[0].ready;
  EXPECT_EQ(NearTieOf(contenders), std::nullopt);
}

TEST(NearTieTest, IsNoneWhereNoIntervalIsKnown) {
  std::vector<Contender> contenders = CloseContenders();
  for (Contender& one : contenders) one.plan.low_s = one.plan.high_s = one.plan.predicted_time_s = 1;
  EXPECT_EQ(NearTieOf(contenders), std::nullopt);
}

TEST(NearTieTest, RunsInTheLastRoundsBesideTheFinalists) {
  Contest contest = NearTie({});
  EXPECT_EQ(contest.Entrants(), (std::vector<size_t>{0, 2}));
  contest.finalists = {0, 1};
  EXPECT_EQ(contest.Entrants(), (std::vector<size_t>{0, 1, 2}));
  contest.finalists = {0, 2};
  EXPECT_EQ(contest.Entrants(), (std::vector<size_t>{0, 2}));
}

// Rounds of a machine that grows slower, so that only pairs of one round can be compared.
const std::vector<double> kChosen_s = {1, 2, 3, 4, 5, 6, 7, 8, 9};

std::vector<double> Times(const std::vector<double>& of_the_chosens) {
  std::vector<double> times_s;
  for (size_t i = 0; i < kChosen_s.size(); ++i) times_s.push_back(kChosen_s[i] * of_the_chosens[i]);
  return times_s;
}

TEST(SettleTest, ALeadInNearlyEveryRoundSettles) {
  // The runner-up takes 5 % longer, with one lucky round: of nine the second smallest is still 4 %.
  const v1::ValidatedWorkload judged =
      Judge("w", NearTie({kChosen_s, Times({1.05, 1.05, 0.9, 1.04, 1.05, 1.06, 1.05, 1.06, 1.07})}));
  const v1::Settlement& settlement = judged.settlement();
  EXPECT_TRUE(settlement.settled());
  EXPECT_EQ(settlement.fastest().schedule(), v1::Schedule::PARM_S2);
  EXPECT_EQ(settlement.fastest().measured_time_s(), 5);
  EXPECT_EQ(settlement.other().schedule(), v1::Schedule::PARM_S1);
  EXPECT_DOUBLE_EQ(settlement.other().measured_time_s(), 5.25);
  EXPECT_NEAR(settlement.lead(), 0.05, 1e-12);
  EXPECT_NEAR(settlement.lead_low(), 0.04, 1e-12);
  EXPECT_NEAR(settlement.lead_high(), 0.06, 1e-12);
  EXPECT_EQ(settlement.rounds(), 9);
  EXPECT_EQ(settlement.runs(), 3);
  EXPECT_EQ(
      SettlementSentence(judged),
      "w: predictions could not tell the fastest; 9 rounds of 3 runs each settle it: PARM_S2, ahead of PARM_S1 by "
      "5 % (90 % interval 4 % to 6 %)");
  EXPECT_DOUBLE_EQ(judged.candidates(2).measured_time_s(), 5.25);
  EXPECT_EQ(judged.regret(), 0);
}

TEST(SettleTest, LeadsThatChangeSidesLeaveItUndecided) {
  const v1::ValidatedWorkload judged =
      Judge("w", NearTie({kChosen_s, Times({1.05, 0.98, 1.01, 0.97, 1.02, 1.03, 1.01, 0.99, 1.04})}));
  EXPECT_FALSE(judged.settlement().settled());
  EXPECT_NEAR(judged.settlement().lead(), 0.01, 1e-12);
  EXPECT_NEAR(judged.settlement().lead_low(), -0.02, 1e-12);
  EXPECT_THAT(SettlementSentence(judged), HasSubstr("leave it undecided: PARM_S2 and PARM_S1 differ by 1 %, within the "
                                                    "noise (90 % interval -2 % to 4 %)"));
}

TEST(SettleTest, TheFastestOfThreeIsHeldAgainstTheChosen) {
  Contest contest = NearTie({kChosen_s, Times(std::vector<double>(9, 0.8)), Times(std::vector<double>(9, 0.9))});
  contest.finalists = {0, 1};
  const v1::Settlement settlement = Settle(contest);
  EXPECT_EQ(settlement.fastest().partition_degree(), 4);
  EXPECT_EQ(settlement.other().schedule(), v1::Schedule::PARM_S2);
  EXPECT_NEAR(settlement.lead(), 0.25, 1e-12);
  EXPECT_TRUE(settlement.settled());
  // Where the chosen is the fastest, against the next.
  contest.final_times_s = {kChosen_s, Times(std::vector<double>(9, 1.2)), Times(std::vector<double>(9, 1.1))};
  EXPECT_EQ(Settle(contest).other().schedule(), v1::Schedule::PARM_S1);
}

TEST(SettleTest, WhereTimesRepeatOneRunOfEachSettles) {
  Contest contest = NearTie({{4}, {4.2}});
  contest.repeats_times = true;
  const v1::ValidatedWorkload judged = Judge("w", contest);
  EXPECT_TRUE(judged.settlement().settled());
  EXPECT_NEAR(judged.settlement().lead_low(), 0.05, 1e-12);
  EXPECT_NEAR(judged.settlement().lead_high(), 0.05, 1e-12);
  EXPECT_EQ(judged.settlement().rounds(), 1);
  EXPECT_EQ(judged.settlement().runs(), 1);
  EXPECT_EQ(SettlementSentence(judged),
            "w: predictions could not tell the fastest; here, where runs repeat exactly, PARM_S2 is ahead of PARM_S1 "
            "by 5 %");
  contest.final_times_s = {{4}, {4 * (1 + 1e-13)}};  // Rounding.
  const v1::ValidatedWorkload alike = Judge("w", contest);
  EXPECT_FALSE(alike.settlement().settled());
  EXPECT_THAT(SettlementSentence(alike), HasSubstr("PARM_S2 takes as long as PARM_S1"));
}

TEST(SettleTest, WhereNothingWasCloseNothingIsSaid) {
  Contest contest = NearTie({kChosen_s});
  contest.near_tie.reset();
  const v1::ValidatedWorkload judged = Judge("w", contest);
  EXPECT_FALSE(judged.has_settlement());
  EXPECT_EQ(SettlementSentence(judged), "");
}

TEST(SettleTest, LabelsTellCandidatesApart) {
  v1::MeasuredCandidate candidate;
  candidate.set_schedule(v1::Schedule::PARM_S2);
  candidate.set_chunks(1);
  candidate.set_partition_degree(2);
  candidate.set_overlapped_gather(true);
  candidate.set_combine_codec(v1::Codec::FP8);
  EXPECT_EQ(Label(candidate), "PARM_S2 r=2 overlapped FP8 back");
}

}  // namespace
}  // namespace moeplan::agent
