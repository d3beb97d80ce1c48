#include "planner/rules/parm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/planner/by_hand.h"
#include "tests/planner/contract_files.h"
#include "tests/test_seed.h"

namespace moeplan::planner {
namespace {

using ::testing::HasSubstr;

TEST(ParmTest, TheContractsExampleGivesItsNumbers) {
  const auto expected = ReadContractFile("expected.example.json")["rules"]["parm"];
  const Profile profile = ExampleProfile();
  PriceNotes notes;
  const auto answer = ParmRule(Resolved(ExampleWorkload(), profile.cluster), profile, notes);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  ExpectAsPrinted(answer->t_baseline_s, expected["tBaselineS"]);
  ExpectAsPrinted(answer->t_s1_s, expected["tS1S"]);
  ExpectAsPrinted(answer->t_s2_s, expected["tS2S"]);
  EXPECT_EQ(Name(answer->choice), expected["choice"].get<std::string>());
}

// One node of 8 GPUs, MP 2, EP 2, ESP 2, and a layer with x = B·L·M·bpe = 1·100·10·2 = 2000 bytes, k·f = 2·1.5 = 3:
// E·T·M·bpe = 6000, y = 12000, y/N_MP = 6000.
Workload SmallWorkload() {
  Workload workload;
  workload.layer = {.batch = 1,
                    .sequence_length = 100,
                    .model_dim = 10,
                    .hidden_dim = 20,
                    .experts = 4,
                    .top_k = 2,
                    .capacity_factor = 1.5};
  workload.layout = {.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2};
  return workload;
}
constexpr Cluster kOneNode = {.nodes = 1, .gpus_per_node = 8};

// Every collective takes 1 µs a byte, with a start-up time that tells it from the others. MP and ESP have the same
// shape here, and so have EP and they.
Profile SmallProfile() {
  Profile profile;
  profile.cluster = kOneNode;
  profile.collectives = {
      Line(Over(Collective::kAllGather, {2, 2}), 1, 1e-6),
      Line(Over(Collective::kAllReduce, {2, 2}), 10, 1e-6),
      Line(Over(Collective::kAllToAll, {2, 2}), 100, 1e-6),
      Line(Over(Collective::kAllToAll, {4, 4}), 1000, 1e-6),
      Line(OverlappedGather({4, 4}, /*gather_group_size=*/2, /*shards=*/2), 1000.5, 1e-6),
  };
  return profile;
}

void Remove(Profile& profile, Collective collective, GroupShape group) {
  std::erase_if(profile.collectives, [&](const CollectiveModel& entry) {
    return entry.key.collective == collective && entry.key.group == group;
  });
}

StatusOr<ParmAnswer> Answer(const Workload& workload, const Profile& profile) {
  PriceNotes notes;
  return ParmRule(Resolved(workload, profile.cluster), profile, notes);
}

TEST(ParmTest, EachFormulaCountsItsCollectivesOnItsSizes) {
  const auto answer = Answer(SmallWorkload(), SmallProfile());
  ASSERT_TRUE(answer.ok());
  // AG(2·2000) + AR(12000) + 2·A2A(12000) = 1.004 + 10.012 + 2·100.012
  EXPECT_NEAR(answer->t_baseline_s, 211.04, 1e-9);
  // 2·A2A(6000) + AG(2000) = 2·1000.006 + 1.002
  EXPECT_NEAR(answer->t_s1_s, 2001.014, 1e-9);
  // A2A(6000) + SAA(6000) = 1000.006 + 1000.506
  EXPECT_NEAR(answer->t_s2_s, 2000.512, 1e-9);
  EXPECT_EQ(answer->choice, Family::kParmS2);
}

TEST(ParmTest, WithoutAnSaaEntryTheGatherFollowsTheSecondAllToAll) {
  Profile profile = SmallProfile();
  Remove(profile, Collective::kAllToAllAllGather, {4, 4});
  const auto answer = Answer(SmallWorkload(), profile);
  ASSERT_TRUE(answer.ok());
  // 2·A2A(6000) + AG(6000) = 2·1000.006 + 1.006
  EXPECT_NEAR(answer->t_s2_s, 2001.018, 1e-9);
  EXPECT_EQ(answer->choice, Family::kParmS1);
}

TEST(ParmTest, AnSaaEntryForOtherShardsIsNotUsed) {
  Profile profile = SmallProfile();
  profile.collectives.back().key.shards = 4;
  const auto answer = Answer(SmallWorkload(), profile);
  ASSERT_TRUE(answer.ok());
  EXPECT_NEAR(answer->t_s2_s, 2001.018, 1e-9);
}

TEST(ParmTest, WithoutTensorParallelismBothSchedulesAreTwoAllToAllsAndS1WinsTheTie) {
  Workload workload = SmallWorkload();
  workload.layout.tensor_parallel = 1;
  Profile profile = SmallProfile();
  profile.collectives.back().key.gather_group_size = 1;  // A gather over one rank is no gather, whatever was measured.
  const auto answer = Answer(workload, profile);
  ASSERT_TRUE(answer.ok());
  // 2·A2A(12000) = 2·1000.012: equation 2 of the paper.
  EXPECT_NEAR(answer->t_s1_s, 2000.024, 1e-9);
  EXPECT_NEAR(answer->t_s2_s, 2000.024, 1e-9);
  EXPECT_EQ(answer->choice, Family::kParmS1);
}

TEST(ParmTest, WithOneExpertRankOnlyTheGathersRemain) {
  Workload workload = SmallWorkload();
  workload.layout = {.tensor_parallel = 2, .expert_parallel = 1, .expert_sharding_parallel = 1};
  const auto answer = Answer(workload, SmallProfile());
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answer->t_baseline_s, 0);
  EXPECT_NEAR(answer->t_s1_s, 1.002, 1e-12);  // AG(x = 2000)
  EXPECT_NEAR(answer->t_s2_s, 1.006, 1e-12);  // AG(E·T·M·bpe = 6000)
}

TEST(ParmTest, ASkippedRuleNamesEveryMissingKeyAndTheCommand) {
  Profile profile = SmallProfile();
  Remove(profile, Collective::kAllReduce, {2, 2});
  Remove(profile, Collective::kAllToAll, {4, 4});
  const auto answer = Answer(SmallWorkload(), profile);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(answer.status().message(),
              HasSubstr("lacks ALL_TO_ALL groupSize 4 ranksPerNode 4 and ALL_REDUCE groupSize 2 ranksPerNode 2; "
                        "measure with: moeplan calibrate"));
}

TEST(ParmTest, LookUpsOutsideTheMeasuredRangeAreNoted) {
  Profile profile = SmallProfile();
  profile.collectives[1].model = MakeCostModel(LogLog{{{1024, 1e-3}, {2048, 2e-3}}});  // ALL_REDUCE, asked at 12000.
  PriceNotes notes;
  ASSERT_TRUE(ParmRule(Resolved(SmallWorkload(), kOneNode), profile, notes).ok());
  EXPECT_THAT(notes.Warnings(), testing::ElementsAre("ALL_REDUCE groupSize 2 ranksPerNode 2: asked at 12000 bytes, "
                                                     "measured 1024 to 2048; extrapolated"));
}

TEST(ParmTest, TimesThatDifferInTheirLastDigitsTie) {
  // SAA takes what the second all-to-all and S1's gather take: t_S1 = t_S2, summed up in another way.
  std::mt19937_64 engine(TestSeed());
  for (int i = 0; i < 1000; ++i) {
    Workload workload = SmallWorkload();
    workload.layer.sequence_length = std::uniform_int_distribution(64, 100000)(engine);
    const auto s_per_byte = [&] { return std::exp(std::uniform_real_distribution(-30.0, -20.0)(engine)); };
    const double exchange_s = s_per_byte(), gather_s = s_per_byte();
    const double x = workload.layer.sequence_length * 20.0, payload = 3 * x;
    Profile profile = SmallProfile();
    profile.collectives = {
        Line(Over(Collective::kAllGather, {2, 2}), 0, gather_s), Line(Over(Collective::kAllReduce, {2, 2}), 0, 1e-6),
        Line(Over(Collective::kAllToAll, {2, 2}), 0, 1e-6), Line(Over(Collective::kAllToAll, {4, 4}), 0, exchange_s),
        Line(OverlappedGather({4, 4}, /*gather_group_size=*/2, /*shards=*/2), 0,
             (exchange_s * payload + gather_s * x) / payload)};
    PriceNotes notes;
    const auto answer = ParmRule(Resolved(workload, profile.cluster), profile, notes);
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    ASSERT_NEAR(answer->t_s1_s, answer->t_s2_s, 1e-12 * answer->t_s1_s);
    ASSERT_EQ(answer->choice, Family::kParmS1) << "case " << i;
  }
}

}  // namespace
}  // namespace moeplan::planner
