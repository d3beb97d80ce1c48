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

Profile Measured(std::initializer_list<GroupShape> groups, double noise) {
  SyntheticCluster cluster(kLine, {.noise = noise}, TestSeed());
  SampleSet samples = {.name = "known", .cluster = {.nodes = 8, .gpus_per_node = 8}};
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
  EXPECT_NEAR(inside.alpha_s, 2e-6, 0.15 * 2e-6);
  EXPECT_NEAR(*inside.bytes_per_s, 2e11, 0.05 * 2e11);
  EXPECT_EQ(between.link, LinkClass::kInterNode);
  EXPECT_NEAR(between.alpha_s, 9e-6, 0.1 * 9e-6);
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

}  // namespace
}  // namespace moeplan
