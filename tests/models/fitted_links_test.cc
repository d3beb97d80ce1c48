#include "models/links/fitted_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/fit/fit.h"
#include "tests/models/synthetic_links.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

// 2 µs and 200 GB/s inside a node, 9 µs and 20 GB/s between nodes, which take turns.
const LinkLine kLine = {.use = {GatherRoute::kRing, /*take_turns=*/true},
                        .costs = {.start_s = 5e-6,
                                  .alpha_s = {2e-6, 9e-6},
                                  .beta_s_per_byte = {1 / 2e11, 1 / 2e10},
                                  .memory_s_per_byte = 1 / 2e12}};

constexpr double kNodeLink = 2e11, kNetwork = 2e10;

Profile Measured(std::initializer_list<GroupShape> groups, double noise,
                 const Cluster& cluster_of_profile = {.nodes = 8, .gpus_per_node = 8}) {
  SyntheticCluster cluster(kLine, {.noise = noise}, TestSeed());
  SampleSet samples = {.name = "known", .cluster = cluster_of_profile};
  for (const GroupShape group : groups) {
    for (const Collective collective : kPlainCollectives) {
      cluster.Measure(CollectiveOver(collective, group.size, group.ranks_per_node), /*curve_factor=*/1, samples);
    }
  }
  return *FitProfile(samples);
}

TEST(FittedLinksTest, ThePaceOfKnownLinksIsFound) {
  const FittedLinks fitted = FitLinks(Measured({{2, 2}, {4, 4}, {8, 8}, {4, 1}, {8, 1}, {16, 8}, {64, 8}}, 0.01));
  ASSERT_THAT(fitted.links, SizeIs(2));
  const FittedLink &inside = fitted.links[0], &between = fitted.links[1];
  EXPECT_EQ(inside.link, LinkClass::kIntraNode);
  EXPECT_NEAR(inside.alpha_s, 7e-6, 0.05 * 7e-6);  // A start of 5 µs and a step.
  EXPECT_NEAR(*inside.bytes_per_s, 2e11, 0.05 * 2e11);
  EXPECT_EQ(between.link, LinkClass::kInterNode);
  EXPECT_NEAR(between.alpha_s, 14e-6, 0.05 * 14e-6);
  EXPECT_NEAR(*between.bytes_per_s, 2e10, 0.05 * 2e10);
  EXPECT_LT(*fitted.relative_error_p50, 0.02);
  // A ring over several nodes has a step inside a node where a node holds several ranks; within one rank a node it has
  // none.
  EXPECT_THAT(between.crossed_by, SizeIs(16));  // Four collectives over (4, 1), (8, 1), (16, 8) and (64, 8).
  EXPECT_EQ(between.crossed_by.front().group, (GroupShape{4, 1}));
  EXPECT_EQ(between.crossed_by.back().group, (GroupShape{64, 8}));
  EXPECT_EQ(inside.crossed_by.front().group, (GroupShape{2, 2}));
}

TEST(FittedLinksTest, ALinkThatNothingCrossedIsNotThere) {
  const FittedLinks fitted = FitLinks(Measured({{2, 2}, {4, 4}}, 0));
  ASSERT_THAT(fitted.links, SizeIs(1));
  EXPECT_EQ(fitted.links[0].link, LinkClass::kIntraNode);
}

TEST(FittedLinksTest, ContendedCostsAndProfilesWithoutCollectivesTellNothing) {
  Profile profile = Measured({{4, 4}}, 0);
  for (CollectiveModel& entry : profile.collectives) entry.key.contention = Contention::kWithCopy;
  const FittedLinks fitted = FitLinks(profile);
  EXPECT_THAT(fitted.links, IsEmpty());
  EXPECT_FALSE(fitted.relative_error_p50.has_value());
}

// Groups of two leave it open what is a step and what a start, and what is the link and what the memory.
TEST(FittedLinksTest, GroupsOfOneSizeGiveNeitherALatencyOfNothingNorABandwidthAboveTheWire) {
  const Cluster known = {
      .nodes = 8, .gpus_per_node = 8, .node_link_bytes_per_s = kNodeLink, .network_bytes_per_s = kNetwork};
  for (const double noise : {0.0, 0.02}) {
    const FittedLinks free = FitLinks(Measured({{2, 2}, {2, 1}}, noise));
    if (noise == 0) {
      EXPECT_GT(*free.links[1].bytes_per_s, kNetwork) << "else this shows nothing";
    }
    const FittedLinks fitted = FitLinks(Measured({{2, 2}, {2, 1}}, noise, known));
    ASSERT_THAT(fitted.links, SizeIs(2));
    EXPECT_LE(*fitted.links[0].bytes_per_s, kNodeLink);
    EXPECT_LE(*fitted.links[1].bytes_per_s, kNetwork);
    EXPECT_NEAR(*fitted.links[1].bytes_per_s, kNetwork, 0.05 * kNetwork);
    EXPECT_NEAR(fitted.links[0].alpha_s, 7e-6, 0.1 * 7e-6);
    EXPECT_NEAR(fitted.links[1].alpha_s, 14e-6, 0.1 * 14e-6);
    EXPECT_LT(*fitted.relative_error_p50, 0.03);
    EXPECT_GE(LineOf(Measured({{2, 2}, {2, 1}}, noise, known))->costs.beta_s_per_byte[1], 1 / kNetwork);
  }
}

// 1 / (1 / 1.7e9) is more than 1.7e9.
TEST(FittedLinksTest, ABandwidthThatIsTheWireIsNotRoundedUp) {
  for (const double wire : {1.7e9, 3.4e9, 3.8e9, 8.2e9}) {
    const Cluster known = {.nodes = 8, .gpus_per_node = 8, .network_bytes_per_s = wire};
    EXPECT_LE(*FitLinks(Measured({{2, 1}}, 0, known)).links[0].bytes_per_s, wire);
  }
}

}  // namespace
}  // namespace moeplan
