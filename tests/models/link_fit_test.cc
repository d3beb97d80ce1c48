#include "models/links/link_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "models/fit/fit.h"
#include "tests/models/synthetic_links.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

LoadedCurve Loaded(const CollectiveKey& key, std::vector<TimePoint> points) {
  LoadedCurve curve = {.points = std::move(points)};
  for (const GatherRoute route : kGatherRoutes) curve.loads[static_cast<size_t>(route)] = LoadOf(key, route).value();
  return curve;
}

std::vector<const LoadedCurve*> PointersTo(const std::vector<LoadedCurve>& curves) {
  std::vector<const LoadedCurve*> pointers;
  for (const LoadedCurve& curve : curves) pointers.push_back(&curve);
  return pointers;
}

// Of groups that tell every parameter of the line from every other.
constexpr GroupShape kTellingGroups[] = {{2, 2}, {4, 4}, {8, 8}, {2, 1}, {4, 1}, {8, 1}, {16, 8}, {32, 8}};

std::vector<LoadedCurve> CurvesOf(const LinkLine& line, const Departures& departures, uint64_t seed) {
  SyntheticCluster cluster(line, departures, seed);
  SampleSet samples = {.cluster = {.nodes = 8, .gpus_per_node = 8}};
  for (const GroupShape& group : kTellingGroups) {
    for (const Collective collective : kPlainCollectives) {
      cluster.Measure(CollectiveOver(collective, group.size, group.ranks_per_node), cluster.DrawCurveFactor(), samples);
    }
  }
  const StatusOr<Profile> profile = FitProfile(samples);
  std::vector<LoadedCurve> curves;
  for (const CollectiveModel& entry : profile->collectives) {
    std::vector<TimePoint> points;
    for (double bytes = 1024; bytes <= 67108864; bytes *= 4)
      points.push_back({bytes, TimeS(entry.model.curve, bytes, 1)});
    curves.push_back(Loaded(entry.key, std::move(points)));
  }
  return curves;
}

void ExpectCosts(const LinkCosts& found, const LinkCosts& expected, double share) {
  const auto near = [&](double a, double b, const char* name) { EXPECT_NEAR(a, b, share * b) << name; };
  near(found.start_s, expected.start_s, "start");
  near(found.alpha_s[0], expected.alpha_s[0], "alpha inside");
  near(found.alpha_s[1], expected.alpha_s[1], "alpha between");
  near(found.beta_s_per_byte[0], expected.beta_s_per_byte[0], "beta inside");
  near(found.beta_s_per_byte[1], expected.beta_s_per_byte[1], "beta between");
  near(found.memory_s_per_byte, expected.memory_s_per_byte, "memory");
}

TEST(LinkFitTest, TheLineIsStartsStepsAndBytes) {
  const LinkCosts costs = {.start_s = 10, .alpha_s = {1, 5}, .beta_s_per_byte = {0.25, 2}, .memory_s_per_byte = 0.125};
  const LinkLoad load = LoadOf(CollectiveOver(Collective::kAllToAll, 16, 8), GatherRoute::kDirect).value();
  // 10 + 7·1 + 8·5 = 57, of 64 bytes 28 inside and 32 through the NIC: 28/4 = 7 and 64; 64/8 = 8 through the memory.
  EXPECT_DOUBLE_EQ(TimeS({{GatherRoute::kDirect, true}, costs}, load, 64), 57 + 7 + 64 + 8);
  EXPECT_DOUBLE_EQ(TimeS({{GatherRoute::kDirect, false}, costs}, load, 64), 57 + 64 + 8);
  EXPECT_EQ(TimeS({{}, costs}, LinkLoad(), 64), 0);
}

TEST(LinkFitTest, ExactTimesGiveTheParametersBack) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 20; ++round) {
    const LinkLine line = RandomLinks(random);
    const std::vector<LoadedCurve> curves = CurvesOf(line, {}, random());
    ExpectCosts(FitLinkLine(PointersTo(curves), line.use).costs, line.costs, 0.03);
  }
}

TEST(LinkFitTest, NoiseAndOutliersMoveTheTimesByAFewPerCent) {
  std::mt19937_64 random(TestSeed());
  std::vector<double> start, alpha, beta;
  for (int round = 0; round < 30; ++round) {
    const LinkLine line = RandomLinks(random);
    const std::vector<LoadedCurve> curves = CurvesOf(line, {.noise = 0.03, .outlier_share = 0.1}, random());
    const LinkCosts found = FitLinkLine(PointersTo(curves), line.use).costs;
    start.push_back(std::abs(found.start_s / line.costs.start_s - 1));
    alpha.push_back(std::abs(found.alpha_s[1] / line.costs.alpha_s[1] - 1));
    beta.push_back(std::abs(found.beta_s_per_byte[1] / line.costs.beta_s_per_byte[1] - 1));
  }
  const auto worst = [](const std::vector<double>& values) { return *std::ranges::max_element(values); };
  std::printf("30 clusters, worst error: start %.3f, alpha of the NIC %.3f, beta of the NIC %.3f\n", worst(start),
              worst(alpha), worst(beta));
  EXPECT_LE(worst(start), 0.05);
  EXPECT_LE(worst(alpha), 0.05);
  EXPECT_LE(worst(beta), 0.05);
}

TEST(LinkFitTest, AThirdOfTheCurvesTenTimesTooSlowAreNotBelieved) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 10; ++round) {
    const LinkLine line = RandomLinks(random);
    std::vector<LoadedCurve> curves = CurvesOf(line, {.noise = 0.01}, random());
    for (size_t i = 0; i < curves.size(); i += 4) {
      for (TimePoint& point : curves[i].points) {
        if (random() % 3 > 0) point.time_s *= 10;
      }
    }
    const LinkLine found = FitLinkLine(PointersTo(curves), line.use);
    EXPECT_NEAR(found.costs.beta_s_per_byte[1] / line.costs.beta_s_per_byte[1], 1, 0.1);
  }
}

TEST(LinkFitTest, TheRouteThatMadeTheTimesIsFound) {
  std::mt19937_64 random(TestSeed());
  int found = 0, rounds = 40;
  for (int round = 0; round < rounds; ++round) {
    const LinkLine line = RandomLinks(random);
    const std::vector<LoadedCurve> curves = CurvesOf(line, {.noise = 0.02}, random());
    found += FitLinkLine(PointersTo(curves)).use.route == line.use.route;
  }
  EXPECT_GE(found, rounds * 9 / 10);
}

TEST(LinkFitTest, WhatCannotBeToldApartIsDividedAndStillGivesTheTimes) {
  // One group of one size: a start and a step are one number, memory and NIC another. 20 µs + 3 ns a byte.
  const std::vector<TimePoint> points = {{1e3, 23e-6}, {1e5, 320e-6}, {1e7, 30020e-6}};
  const std::vector<LoadedCurve> curves = {Loaded(CollectiveOver(Collective::kAllToAll, 2, 1), points)};
  const LinkLine line = FitLinkLine(PointersTo(curves));
  for (const TimePoint& point : points) {
    EXPECT_NEAR(TimeS(line, curves[0].loads[0], point.size) / point.time_s, 1, 1e-3);
  }
  EXPECT_NEAR(line.costs.start_s, 10e-6, 0.1e-6);
  EXPECT_NEAR(line.costs.alpha_s[1], 10e-6, 0.1e-6);
  EXPECT_EQ(line.costs.beta_s_per_byte[0], 0);
}

// One group of two, whose NIC carries half of what the memory does: 20 µs and 3 ns a byte of the buffer, which are 6 ns
// a byte over the NIC. A least-squares fit gives some of them to the memory, so that the NIC seems faster than it is.
TEST(LinkFitTest, NoLinkIsFasterThanItsWire) {
  const std::vector<TimePoint> points = {{1e3, 23e-6}, {1e5, 320e-6}, {1e7, 30020e-6}};
  const std::vector<LoadedCurve> curves = {Loaded(CollectiveOver(Collective::kAllToAll, 2, 1), points)};
  const Wires wires = {.bytes_per_s = {0, 1 / 6e-9}};
  EXPECT_LT(FitLinkLine(PointersTo(curves)).costs.beta_s_per_byte[1], 5e-9);
  const LinkLine line = FitLinkLine(PointersTo(curves), wires);
  EXPECT_EQ(line.costs.beta_s_per_byte[1], wires.BetaFloor(1));
  EXPECT_NEAR(line.costs.memory_s_per_byte, 0, 1e-12);
  for (const TimePoint& point : points) {
    EXPECT_NEAR(TimeS(line, curves[0].loads[0], point.size) / point.time_s, 1, 1e-3);
  }
}

TEST(LinkFitTest, NoLinkIsFasterThanItsWireWhateverTheNoise) {
  std::mt19937_64 random(TestSeed());
  int too_fast = 0;
  for (int round = 0; round < 30; ++round) {
    const LinkLine line = RandomLinks(random);
    const auto& betas = line.costs.beta_s_per_byte;
    const Wires wires = {.bytes_per_s = {1 / betas[0], 1 / betas[1]}};
    const std::vector<LoadedCurve> curves = CurvesOf(line, {.noise = 0.03, .curve_spread = 0.05}, random());
    const LinkLine free = FitLinkLine(PointersTo(curves), line.use);
    const LinkLine bounded = FitLinkLine(PointersTo(curves), line.use, wires);
    for (size_t link = 0; link < kLinkClasses; ++link) {
      too_fast += free.costs.beta_s_per_byte[link] < wires.BetaFloor(link);
      EXPECT_GE(bounded.costs.beta_s_per_byte[link], wires.BetaFloor(link));
      EXPECT_LE(bounded.costs.beta_s_per_byte[link], 1.1 * std::max(betas[link], free.costs.beta_s_per_byte[link]));
    }
  }
  EXPECT_GE(too_fast, 10) << "of 60; else this shows nothing";
}

TEST(LinkFitTest, AWireFasterThanTheLinkChangesNothing) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 10; ++round) {
    const LinkLine line = RandomLinks(random);
    const std::vector<LoadedCurve> curves = CurvesOf(line, {.noise = 0.03}, random());
    const LinkLine free = FitLinkLine(PointersTo(curves));
    const LinkLine bounded = FitLinkLine(PointersTo(curves), Wires{.bytes_per_s = {1e12, 1e12}});
    EXPECT_EQ(bounded.use, free.use);
    ExpectCosts(bounded.costs, free.costs, 1e-6);
    EXPECT_EQ(FitLinkLine(PointersTo(curves), Wires()), free);
  }
}

TEST(LinkFitTest, AClassThatNothingCrossedCostsWhatItsWireDoes) {
  const std::vector<LoadedCurve> curves = {
      Loaded(CollectiveOver(Collective::kAllToAll, 2, 1), {{1e3, 23e-6}, {1e7, 30020e-6}})};
  EXPECT_EQ(FitLinkLine(PointersTo(curves), Wires{.bytes_per_s = {4e9, 0}}).costs.beta_s_per_byte[0], 1 / 4e9);
}

TEST(LinkFitTest, RatesOfNoMachineAreNotKnown) {
  const Cluster cluster = {.node_link_bytes_per_s = 5e-324, .network_bytes_per_s = 5e10};
  EXPECT_EQ(WiresOf(cluster).bytes_per_s, (std::array{0.0, 5e10}));
  EXPECT_EQ(WiresOf({.node_link_bytes_per_s = 4e11, .network_bytes_per_s = 1e300}).bytes_per_s,
            (std::array{4e11, 0.0}));
  EXPECT_EQ(WiresOf({}).BetaFloor(0), 0);
}

}  // namespace
}  // namespace moeplan
