// Profiles of named hardware below leaves and a spine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <variant>

#include "planner/layout/price_layout.h"
#include "planner/shipped/names.h"

namespace moeplan::planner {
namespace {

constexpr double kCard = 50e9 * 0.85;  // Of h100-sxm, in bytes/s.

class HardwareNetworkTest : public ::testing::Test {
 protected:
  // 16 domains of 8 GPUs.
  Profile ProfileBelow(const Network& network) const { return ProfileOf(hardware_, 16, 8, model_, network); }

  static double SecondsPerByte(const Profile& profile, Collective collective, GroupShape group, int stride = 0) {
    const CostModel* model = moeplan::Find(
        profile, CollectiveKey{.collective = collective, .group = group, .bytes_per_element = 2, .stride = stride});
    return std::get<AlphaBeta>(model->curve).beta_s_per_unit;
  }

  // How long a rank is at the part in a step.
  static double PartS(const std::string& part, const StepQuestion& question, const Profile& profile) {
    const auto step = PriceLayout(question, profile);
    EXPECT_TRUE(step.ok()) << step.status().message();
    for (const StepPartTime& time : step->parts) {
      if (time.part == part) return time.forward_s + time.backward_s;
    }
    ADD_FAILURE() << "no " << part;
    return 0;
  }
  StepQuestion Question(int expert_parallel, int pipeline_parallel = 1) const {
    StepQuestion question = {
        .request = {.model = model_, .gpus = 128, .global_batch = 512, .sequence_length = 4096, .zero_stage = 1}};
    question.layout.expert_parallel = expert_parallel;
    question.layout.pipeline_parallel = pipeline_parallel;
    question.schedule = Family::kBaseline;
    return question;
  }

  const Hardware hardware_ = *HardwareOf("h100-sxm");
  const ModelConfig model_ = *NamedModel("qwen3-30b-a3b");
};

TEST_F(HardwareNetworkTest, OneLeafAndUplinksAsFastAsCardsAreThePlainProfile) {
  const Profile plain = ProfileOf(hardware_, 16, 8, model_);
  EXPECT_EQ(ProfileBelow({}), plain);
  EXPECT_EQ(ProfileBelow({.nodes_per_leaf = 16, .oversubscription = 4}), plain);
  EXPECT_EQ(ProfileBelow({.nodes_per_leaf = 4, .oversubscription = 1}), plain);
  EXPECT_EQ(ProfileBelow({.bytes_per_s = 50e9}), plain);
  EXPECT_NE(ProfileBelow({.nodes_per_leaf = 4, .oversubscription = 2}), plain);
  EXPECT_TRUE(
      std::ranges::all_of(plain.collectives, [](const CollectiveModel& entry) { return entry.key.stride == 0; }));
}

TEST_F(HardwareNetworkTest, AllToAllsPassTheirSlowestPart) {
  const Profile profile = ProfileBelow({.nodes_per_leaf = 4, .oversubscription = 4});
  const auto seconds = [&](GroupShape group) { return SecondsPerByte(profile, Collective::kAllToAll, group); };
  EXPECT_DOUBLE_EQ(seconds({8, 8}), 7.0 / 8 / 277e9);
  EXPECT_DOUBLE_EQ(seconds({32, 8}), 24.0 / 32 / kCard);      // 4 domains below one leaf.
  EXPECT_DOUBLE_EQ(seconds({64, 8}), 32.0 / 64 / kCard * 4);  // 8: half of the bytes pass a quarter of the rate.
  EXPECT_DOUBLE_EQ(seconds({8, 1}), 4.0 / 8 / kCard * 4);
}

TEST_F(HardwareNetworkTest, RingsPassALeafOnceUnlessTheirDomainsAreFarApart) {
  const Profile profile = ProfileBelow({.nodes_per_leaf = 4, .oversubscription = 12});
  const auto seconds = [&](Collective collective, GroupShape group, int stride = 0) {
    return SecondsPerByte(profile, collective, group, stride);
  };
  EXPECT_DOUBLE_EQ(seconds(Collective::kAllGather, {4, 1}), 3.0 / 4 / kCard);
  EXPECT_DOUBLE_EQ(seconds(Collective::kAllGather, {8, 1}), 7.0 / 8 / kCard * 12 / 4);
  EXPECT_DOUBLE_EQ(seconds(Collective::kReduceScatter, {64, 8}), 63.0 / 64 / (8 * kCard) * 12 / 4);
  // Domains 0, 4, 8 and 12: the next is always below another leaf.
  EXPECT_DOUBLE_EQ(seconds(Collective::kAllReduce, {4, 1}, /*stride=*/32), 2 * 3.0 / 4 / kCard * 12);
}

TEST_F(HardwareNetworkTest, ACardsRateStandsInForTheFigure) {
  const Profile profile = ProfileBelow({.nodes_per_leaf = 4, .oversubscription = 4, .bytes_per_s = 25e9});
  EXPECT_DOUBLE_EQ(SecondsPerByte(profile, Collective::kAllToAll, {32, 8}), 24.0 / 32 / (25e9 * 0.85));
  EXPECT_DOUBLE_EQ(SecondsPerByte(profile, Collective::kAllToAll, {64, 8}), 32.0 / 64 / (25e9 * 0.85) * 4);
}

// Where cards are faster than NVLink, a byte that is relayed to its rail is one that counts inside already: of an
// all-to-all over two domains 7 of 16 stay in the domain and 7 of 8 of the other 8 are relayed, 14, of 15 that count.
TEST_F(HardwareNetworkTest, WhatRailsRelayIsAmongTheBytesThatCountInsideADomain) {
  const Network rails = {.nodes_per_leaf = 4, .oversubscription = 4, .rails = true, .bytes_per_s = 4e12};
  const double counted = SecondsPerByte(ProfileBelow(rails), Collective::kAllToAll, {16, 8}) * 277e9;
  EXPECT_DOUBLE_EQ(counted, 15.0 / 16);
  EXPECT_GE(counted, 7.0 / 16 + 8.0 / 16 * 7 / 8);
  Network whole_domains = rails;
  whole_domains.rails = false;
  EXPECT_EQ(ProfileBelow(rails), ProfileBelow(whole_domains));
}

TEST_F(HardwareNetworkTest, SoManyDomainsAreLaidBelowLeavesAndNoMore) {
  const Network leaves = {.nodes_per_leaf = 4, .oversubscription = 4};
  EXPECT_TRUE(HardwareProfile("h100-sxm:8192x1", 8192, model_, {}, leaves).ok());
  const auto refused = HardwareProfile("h100-sxm:8193x1", 8193, model_, {}, leaves);
  EXPECT_EQ(refused.status(),
            InvalidInput("network.nodesPerLeaf: found leaves below 8193 domains, expected at most 8192 "
                         "domains where leaves are oversubscribed"));
  EXPECT_TRUE(HardwareProfile("h100-sxm:8193x1", 8193, model_).ok());
}

TEST_F(HardwareNetworkTest, MoreOversubscriptionIsNeverFaster) {
  for (const int nodes_per_leaf : {1, 3, 4, 8}) {
    Profile before = ProfileBelow({.nodes_per_leaf = nodes_per_leaf});
    for (const double oversubscription : {1.5, 2.0, 4.0, 16.0}) {
      const Profile profile = ProfileBelow({.nodes_per_leaf = nodes_per_leaf, .oversubscription = oversubscription});
      ASSERT_TRUE(ValidateProfile(profile).ok()) << ValidateProfile(profile).message();
      for (const CollectiveModel& entry : profile.collectives) {
        const CostModel* was = moeplan::Find(before, entry.key);
        ASSERT_NE(was, nullptr) << Describe(CostKey(entry.key));
        EXPECT_GE(TimeS(entry.model.curve, 1e8, 1), TimeS(was->curve, 1e8, 1)) << Describe(CostKey(entry.key));
      }
      before = profile;
    }
  }
}

// A cost that groups of any stride have together is one, so that its error counts once.
TEST_F(HardwareNetworkTest, CostsAreNamedAsTheProfileHasThem) {
  const Profile slow = ProfileBelow({.nodes_per_leaf = 4, .oversubscription = 4});
  StepQuestion question = Question(32, /*pipeline_parallel=*/2);
  question.layout.tensor_parallel = 2;
  const auto step = PriceLayout(question, slow);
  ASSERT_TRUE(step.ok()) << step.status().message();
  int collectives = 0, apart = 0;
  for (const StepError& error : step->errors) {
    const auto* key = std::get_if<CollectiveKey>(&error.key);
    if (key == nullptr) continue;
    ++collectives;
    apart += key->stride > 0;
    EXPECT_TRUE(std::ranges::any_of(slow.collectives, [&](const CollectiveModel& entry) {
      return Essential(entry.key) == Essential(error.key);
    })) << Describe(error.key);
  }
  EXPECT_GT(collectives, apart);
  EXPECT_GT(apart, 0);
}

// Experts over a whole leaf keep their exchange below it, and sum their gradients from leaf to leaf; experts over a
// domain have replicas next door.
TEST_F(HardwareNetworkTest, AStepKnowsHowFarApartExpertsReplicasAre) {
  const Profile plain = ProfileBelow({}), slow = ProfileBelow({.nodes_per_leaf = 4, .oversubscription = 4});
  EXPECT_EQ(PartS("moeLayers", Question(32), slow), PartS("moeLayers", Question(32), plain));
  EXPECT_GT(PartS("moeLayers", Question(64), slow), 1.5 * PartS("moeLayers", Question(64), plain));
  EXPECT_EQ(PartS("gradients", Question(8), slow), PartS("gradients", Question(8), plain));
  EXPECT_GT(PartS("gradients", Question(32), slow), 1.2 * PartS("gradients", Question(32), plain));
}

TEST_F(HardwareNetworkTest, AStepKnowsHowFarApartStagesAre) {
  const Profile plain = ProfileBelow({}), slow = ProfileBelow({.nodes_per_leaf = 4, .oversubscription = 4});
  // Stages of 8 domains are below other leaves, and those of one domain mostly below the same.
  EXPECT_GT(PartS("pipelineExchange", Question(8, /*pipeline_parallel=*/2), slow),
            1.5 * PartS("pipelineExchange", Question(8, /*pipeline_parallel=*/2), plain));
  EXPECT_EQ(PartS("pipelineExchange", Question(8, /*pipeline_parallel=*/16), slow),
            PartS("pipelineExchange", Question(8, /*pipeline_parallel=*/16), plain));
}

}  // namespace
}  // namespace moeplan::planner
