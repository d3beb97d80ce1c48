// Cost models under "what if it were faster".
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/sweep/cost_scaling.h"

namespace moeplan::planner {
namespace {

CollectiveModel Entry(GroupShape group, CostModel model) {
  return {{.collective = Collective::kAllToAll, .group = group}, std::move(model)};
}

TEST(CostScalingTest, AFasterNicHalvesThePerBytePartOfALineAndKeepsItsLatency) {
  Profile profile;
  profile.collectives = {Entry({2, 1}, MakeCostModel(AlphaBeta{3e-5, 4e-11}))};
  ScaleNic(profile, 2);
  // 30 µs + 1e6 bytes at 20 ps each = 50 µs.
  EXPECT_NEAR(TimeS(profile.collectives[0].model.curve, 1e6, 0.5), 5e-5, 1e-15);
  EXPECT_NEAR(TimeS(profile.collectives[0].model.curve, 0, 0.5), 3e-5, 1e-15);
}

TEST(CostScalingTest, GroupsInsideANodeKeepTheirTimes) {
  Profile profile;
  profile.collectives = {Entry({8, 8}, MakeCostModel(AlphaBeta{3e-5, 4e-11})),
                         Entry({16, 8}, MakeCostModel(AlphaBeta{3e-5, 4e-11}))};
  profile.cluster = {.node_link_bytes_per_s = 4e11, .network_bytes_per_s = 5e10};
  const Profile before = profile;
  ScaleNic(profile, 4);
  EXPECT_EQ(profile.cluster.node_link_bytes_per_s, 4e11);
  EXPECT_EQ(profile.cluster.network_bytes_per_s, 2e11);
  EXPECT_EQ(profile.collectives[0], before.collectives[0]);
  EXPECT_NE(profile.collectives[1], before.collectives[1]);
}

TEST(CostScalingTest, PointsKeepTheLatencyOfTheSummary) {
  CostModel model = MakeCostModel(LogLog{{{1e3, 1e-5}, {1e6, 5e-5}, {1e7, 3.1e-4}}});
  model.summary = AlphaBeta{1e-5, 3e-11};
  ScaleRate(model, 2, 0.5);
  // 10 µs of each are latency: 10; 10 + 40/2 = 30; 10 + 300/2 = 160 µs.
  EXPECT_NEAR(TimeS(model.curve, 1e3, 0.5), 1e-5, 1e-15);
  EXPECT_NEAR(TimeS(model.curve, 1e6, 0.5), 3e-5, 1e-15);
  EXPECT_NEAR(TimeS(model.curve, 1e7, 0.5), 1.6e-4, 1e-15);
  EXPECT_EQ(*model.summary, (AlphaBeta{1e-5, 1.5e-11}));
}

TEST(CostScalingTest, WithoutASummaryTheLatencyIsThatOfTheLineThroughThePoints) {
  // Points of 20 µs + 100 ps a byte.
  const auto time_s = [](double bytes, double beta) { return 2e-5 + beta * bytes; };
  const std::vector<double> sizes = {1e4, 1e5, 1e6, 1e7};
  Interpolated timed;
  Efficiency efficiency{.peak_per_s = 1e10};
  for (const double size : sizes) {
    timed.points.push_back({size, time_s(size, 1e-10)});
    efficiency.points.push_back({size, size * 0.75 / (1e10 * time_s(size, 1e-10))});
  }
  for (CostModel model : {MakeCostModel(timed), MakeCostModel(efficiency)}) {
    ScaleRate(model, 4, /*bus_factor=*/0.75);
    for (const double size : sizes) {
      EXPECT_NEAR(TimeS(model.curve, size, 0.75), time_s(size, 2.5e-11), 1e-3 * time_s(size, 2.5e-11)) << size;
    }
  }
}

TEST(CostScalingTest, ASlowerNicTakesLonger) {
  CostModel model = MakeCostModel(AlphaBeta{1e-5, 1e-11});
  ScaleRate(model, 0.5, 0.5);
  EXPECT_NEAR(TimeS(model.curve, 1e6, 0.5), 1e-5 + 2e-5, 1e-15);
}

TEST(CostScalingTest, TheSameSpeedChangesNoBit) {
  const CostModel model = MakeCostModel(Efficiency{2.5e10, {{1048576, 0.11}, {8388608, 0.43}}});
  CostModel scaled = model;
  ScaleRate(scaled, 1, 0.5);
  EXPECT_EQ(scaled, model);
}

TEST(CostScalingTest, TimeScalesWholeTimes) {
  for (const Curve& curve : {Curve(LogLog{{{1e3, 1e-5}, {1e6, 5e-5}}}), Curve(Interpolated{{{1e3, 1e-5}, {1e6, 5e-5}}}),
                             Curve(Efficiency{1e10, {{1e3, 0.1}, {1e6, 0.5}}}), Curve(AlphaBeta{1e-5, 1e-11})}) {
    CostModel model = MakeCostModel(curve);
    model.summary = AlphaBeta{1e-5, 1e-11};
    ScaleTime(model, 0.25);
    for (const double size : {1e2, 1e3, 1e5, 1e6, 1e8}) {
      const double expected_s = 0.25 * TimeS(curve, size, 0.5);
      EXPECT_NEAR(TimeS(model.curve, size, 0.5), expected_s, 1e-12 * expected_s);
    }
    EXPECT_NEAR(model.summary->alpha_s, 2.5e-6, 1e-18);
  }
}

}  // namespace
}  // namespace moeplan::planner
