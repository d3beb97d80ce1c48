#include "planner/rules/explain_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "planner/rules/monta.h"
#include "planner/rules/parm.h"
#include "planner/rules/schemoe.h"
#include "planner/search/plan_layer.h"
#include "tests/planner/by_hand.h"
#include "tests/planner/contract_files.h"
#include "tests/test_seed.h"

namespace moeplan::planner {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const RuleTime& TimeNamed(const ExplainedRule& rule, const std::string& name) {
  static const RuleTime kNone;
  for (const RuleTime& time : rule.times) {
    if (time.name == name) return time;
  }
  ADD_FAILURE() << rule.rule << " explains no " << name;
  return kNone;
}

double SumOf(const RuleTime& time) {
  double sum = 0;
  for (const RuleTerm& term : time.terms) sum += term.count * term.time_s;
  return sum;
}

std::string ChosenOf(const ExplainedRule& rule) {
  std::string chosen;
  for (const RuleTime& time : rule.times) {
    if (time.chosen) chosen += time.name;
  }
  return chosen;
}

void ExpectTheAnswers(const Workload& workload, const Profile& profile) {
  const auto answer = PlanLayer(workload, profile);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  const std::vector<ExplainedRule> rules = ExplainRulesOf(Resolved(workload, profile.cluster), profile);
  ASSERT_THAT(rules, SizeIs(3));
  const auto expect_time = [](const ExplainedRule& rule, const char* name, double time_s) {
    EXPECT_EQ(TimeNamed(rule, name).time_s, time_s) << rule.rule << " " << name;
  };
  const auto& [parm, monta, schemoe] = answer->rules;
  ASSERT_EQ(rules[0].skipped.empty(), parm.has_value());
  if (parm) {
    expect_time(rules[0], "t_B", parm->t_baseline_s);
    expect_time(rules[0], "t_S1", parm->t_s1_s);
    expect_time(rules[0], "t_S2", parm->t_s2_s);
    EXPECT_EQ(ChosenOf(rules[0]), parm->choice == Family::kParmS1 ? "t_S1" : "t_S2");
    EXPECT_THAT(rules[0].times, SizeIs(3));
  }
  ASSERT_EQ(rules[1].skipped.empty(), monta.has_value());
  if (monta) {
    expect_time(rules[1], "baseline", monta->t_baseline_s);
    expect_time(rules[1], "O1", monta->o1_time_s);
    if (monta->o2) expect_time(rules[1], "O2", monta->o2->time_s);
    if (monta->o3) expect_time(rules[1], "O3", monta->o3->time_s);
    EXPECT_THAT(rules[1].times, SizeIs(2 + monta->o2.has_value() + monta->o3.has_value()));
    EXPECT_EQ("MONTA_" + ChosenOf(rules[1]), Name(monta->choice));
  }
  for (int rule = 0; rule < 2; ++rule) {
    for (const RuleTime& time : rules[rule].times) {
      EXPECT_NEAR(SumOf(time), time.time_s, 1e-12 * time.time_s) << rules[rule].rule << " " << time.name;
      EXPECT_THAT(time.formula, HasSubstr(time.terms.front().symbol));
    }
  }
  ASSERT_EQ(rules[2].skipped.empty(), schemoe.has_value());
  if (schemoe) {
    expect_time(rules[2], "OptSche", schemoe->opt_sche_time_s);
    expect_time(rules[2], "optimum", schemoe->optimal_time_s);
    for (const RuleTerm& term : TimeNamed(rules[2], "OptSche").terms) {
      EXPECT_EQ(term.count, schemoe->partition_degree);
    }
    // As many tasks as the order has.
    EXPECT_EQ(TimeNamed(rules[2], "optimum").terms.size() * schemoe->partition_degree, schemoe->order.size());
  }
}

TEST(ExplainRulesTest, TimesAreThoseOfTheAnswerAndTermsAddUp) { ExpectTheAnswers(ExampleWorkload(), ExampleProfile()); }

TEST(ExplainRulesTest, SoTheyAreWhateverTheLayer) {
  std::mt19937_64 random(TestSeed());
  const Profile profile = ExampleProfile();
  int answered = 0;
  for (int round = 0; round < 50; ++round) {
    Workload workload = ExampleWorkload();
    workload.layer.batch = 1 << random() % 5;
    workload.layer.sequence_length = 512 << random() % 5;
    workload.layer.capacity_factor = 1 + 0.25 * static_cast<double>(random() % 5);
    workload.min_chunk_bytes = static_cast<double>(1 << (14 + random() % 10));
    workload.dispatch_codec = random() % 2 == 0 ? Codec::kNone : Codec::kFp8;
    if (!ResolveWorkload(workload, profile.cluster).ok()) continue;
    ++answered;
    ExpectTheAnswers(workload, profile);
  }
  EXPECT_GT(answered, 25);
}

// One node of 8 GPUs, MP 2, EP 2, ESP 2: x = 1·100·10·2 = 2000 bytes, k·f = 3, E·T·M·bpe = 6000, y = 12000. Every
// collective takes 1 µs a byte and a start of its own.
TEST(ExplainRulesTest, ParmsTermsAreItsFormulasWithNumbersFilledIn) {
  Workload workload;
  workload.layer = {.batch = 1,
                    .sequence_length = 100,
                    .model_dim = 10,
                    .hidden_dim = 20,
                    .experts = 4,
                    .top_k = 2,
                    .capacity_factor = 1.5};
  workload.layout = {.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2};
  Profile profile = {.cluster = {.nodes = 1, .gpus_per_node = 8}};
  profile.collectives = {
      Line(Over(Collective::kAllGather, {2, 2}), 1, 1e-6), Line(Over(Collective::kAllReduce, {2, 2}), 10, 1e-6),
      Line(Over(Collective::kAllToAll, {2, 2}), 100, 1e-6), Line(Over(Collective::kAllToAll, {4, 4}), 1000, 1e-6)};
  const ExplainedRule parm = ExplainRulesOf(Resolved(workload, profile.cluster), profile)[0];
  const RuleTime& baseline = TimeNamed(parm, "t_B");
  ASSERT_THAT(baseline.terms, SizeIs(3));
  EXPECT_EQ(baseline.terms[0].symbol, "AG_ESP(N_ESP·x)");
  EXPECT_EQ(Describe(*baseline.terms[0].cost), "ALL_GATHER groupSize 2 ranksPerNode 2");
  EXPECT_EQ(baseline.terms[0].size, 4000);
  EXPECT_NEAR(baseline.terms[0].time_s, 1.004, 1e-12);
  EXPECT_EQ(baseline.terms[2].symbol, "A2A_EP(y)");
  EXPECT_EQ(baseline.terms[2].count, 2);
  EXPECT_NEAR(baseline.time_s, 1.004 + 10.012 + 2 * 100.012, 1e-9);
  EXPECT_THAT(parm.definitions, testing::Contains("y = E·T·M·N_ESP·bpe = 12000 bytes"));
}

TEST(ExplainRulesTest, ATermOverOneRankAsksNothing) {
  Workload workload = ExampleWorkload();
  const Profile profile = ExampleProfile();
  workload.layout.tensor_parallel = 1;
  workload.layout.data_parallel = 0;  // Whatever fills the ranks.
  const std::vector<ExplainedRule> rules = ExplainRulesOf(Resolved(workload, profile.cluster), profile);
  const RuleTime o1 = TimeNamed(rules[1], "O1");
  ASSERT_THAT(o1.terms, SizeIs(2));
  EXPECT_EQ(o1.terms[1].symbol, "AG_MP(I)");
  EXPECT_FALSE(o1.terms[1].cost.has_value());
  EXPECT_EQ(o1.terms[1].time_s, 0);
}

TEST(ExplainRulesTest, ARuleThatCannotAnswerSaysWhyAndHasNoTimes) {
  Profile profile = ExampleProfile();
  std::erase_if(profile.collectives, [](const CollectiveModel& entry) {
    return entry.key.collective == Collective::kAllToAll && entry.key.contention == Contention::kNone;
  });
  for (const ExplainedRule& rule : ExplainRulesOf(Resolved(ExampleWorkload(), profile.cluster), profile)) {
    EXPECT_THAT(rule.skipped, HasSubstr("the profile lacks ALL_TO_ALL")) << rule.rule;
    EXPECT_THAT(rule.times, IsEmpty());
  }
}

}  // namespace
}  // namespace moeplan::planner
