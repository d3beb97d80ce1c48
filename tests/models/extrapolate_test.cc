#include "models/cost/extrapolate.h"

#include <gtest/gtest.h>

namespace moeplan {
namespace {

CollectiveKey Over(Collective collective, int size, int ranks_per_node) {
  return {.collective = collective, .group = {size, ranks_per_node}};
}

Profile With(std::vector<CollectiveModel> collectives) {
  Profile profile;
  profile.cluster = {.nodes = 8, .gpus_per_node = 8};
  profile.collectives = std::move(collectives);
  return profile;
}

CollectiveModel Line(const CollectiveKey& key, double alpha_s, double beta_s_per_byte) {
  return {key, MakeCostModel(AlphaBeta{alpha_s, beta_s_per_byte})};
}

double TimeOf(const Profile& profile, const CollectiveKey& key, double bytes) {
  const auto stand_in = ExtrapolateGroup(profile, key);
  if (!stand_in) return -1;
  return Price(stand_in->model.model, bytes, BusFactor(key.collective, key.group.size)).time_s;
}

TEST(ExtrapolateTest, TheNearestGroupScaledByItsShareOfTheLinks) {
  const Profile profile =
      With({Line(Over(Collective::kAllToAll, 2, 1), 0, 1), Line(Over(Collective::kAllToAll, 4, 1), 0, 3),
            Line(Over(Collective::kAllToAll, 16, 8), 0, 5)});
  // φ(8) / φ(4) = (7/8) / (3/4), times 3 s a byte.
  EXPECT_DOUBLE_EQ(TimeOf(profile, Over(Collective::kAllToAll, 8, 1), 6), 6 * 3 * 7.0 / 6);
  // As many ranks on a node count before as many ranks: φ(64) / φ(16) = (63/64) / (15/16).
  EXPECT_DOUBLE_EQ(TimeOf(profile, Over(Collective::kAllToAll, 64, 8), 1), 5 * 63.0 / 60);
}

TEST(ExtrapolateTest, NoLinkInsideANodeStandsForOneBetweenNodes) {
  const Profile inside = With({Line(Over(Collective::kAllGather, 8, 8), 0, 1)});
  EXPECT_FALSE(ExtrapolateGroup(inside, Over(Collective::kAllGather, 2, 1)));
  EXPECT_TRUE(ExtrapolateGroup(inside, Over(Collective::kAllGather, 4, 4)));
  const Profile between = With({Line(Over(Collective::kAllGather, 8, 1), 0, 1)});
  EXPECT_FALSE(ExtrapolateGroup(between, Over(Collective::kAllGather, 8, 8)));
}

TEST(ExtrapolateTest, AnotherCollectiveServesWhereTheSameWasNotMeasuredThatFar) {
  Profile profile = With({Line(Over(Collective::kAllGather, 8, 1), 0, 1)});
  // An all-reduce moves 2(n-1)/n of its bytes, an all-gather (n-1)/n.
  EXPECT_DOUBLE_EQ(TimeOf(profile, Over(Collective::kAllReduce, 8, 1), 10), 20);
  profile.collectives.push_back(Line(Over(Collective::kAllReduce, 2, 1), 0, 7));
  // Now φ(8) / φ(2) = (14/8) / 1.
  EXPECT_DOUBLE_EQ(TimeOf(profile, Over(Collective::kAllReduce, 8, 1), 10), 10 * 7 * 14 / 8.0);
}

TEST(ExtrapolateTest, AnEfficiencyCurveHasTheShareInItself) {
  const Profile profile =
      With({{Over(Collective::kAllToAll, 2, 1), MakeCostModel(Efficiency{10, {{1, 0.5}, {1024, 0.5}}})}});
  // 100 bytes · 7/8 at 10 · 0.5 bytes/s.
  EXPECT_DOUBLE_EQ(TimeOf(profile, Over(Collective::kAllToAll, 8, 1), 100), 100 * 7 / 8.0 / 5);
}

TEST(ExtrapolateTest, CurvesKeepTheirRangeAndOwnAlgorithmsServeNobody) {
  CollectiveKey other = Over(Collective::kAllToAll, 4, 1);
  other.algorithm = AllToAllAlgorithm::kHier2d;
  const Profile profile = With({{other, MakeCostModel(AlphaBeta{0, 1})},
                                {Over(Collective::kAllToAll, 2, 1), MakeCostModel(LogLog{{{8, 1}, {64, 2}}})}});
  const auto stand_in = ExtrapolateGroup(profile, Over(Collective::kAllToAll, 4, 1));
  ASSERT_TRUE(stand_in);
  EXPECT_EQ(stand_in->source, Over(Collective::kAllToAll, 2, 1));
  EXPECT_EQ(stand_in->model.model.size_high, 64);
  EXPECT_DOUBLE_EQ(TimeOf(profile, Over(Collective::kAllToAll, 4, 1), 8), 1.5);  // φ(4) / φ(2) = 1.5.
}

TEST(ExtrapolateTest, TheNearestProductsByTheLogsOfTheirDimensions) {
  Profile profile;
  for (const int dim : {256, 4096}) {
    profile.kernels.push_back(
        {{.kernel = Kernel::kExpertGemm, .bytes_per_element = 2, .model_dim = dim, .hidden_dim = dim},
         MakeCostModel(AlphaBeta{0, 1})});
  }
  KernelKey asked = {.kernel = Kernel::kExpertGemm, .bytes_per_element = 2, .model_dim = 1024, .hidden_dim = 2048};
  EXPECT_EQ(NearestGemm(profile, asked)->key.model_dim, 4096);  // 2 + 1 doublings away, not 2 + 3.
  asked.hidden_dim = 512;
  EXPECT_EQ(NearestGemm(profile, asked)->key.model_dim, 256);
  EXPECT_EQ(NearestGemm(Profile(), asked), nullptr);
}

}  // namespace
}  // namespace moeplan
