// Curves of very many sizes and repeats, and where they break.
#include "models/fit/fitted_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <ctime>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "models/fit/breakpoints.h"
#include "models/fit/fit.h"
#include "models/fit/robust_line.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

using ::testing::IsEmpty;

constexpr double kKib = 1024;

// Times of a curve with an offset, a rate and a step; every third size was repeated.
std::vector<SizedTimes> ManySizes(int count) {
  std::vector<SizedTimes> measurements;
  for (int i = 0; i < count; ++i) {
    const double size = 1024 * std::pow(2.0, 16.0 * i / count);
    const double time_s = 5e-6 + size / 40e9 + (size > 1 << 20 ? 2e-5 : 0);
    measurements.push_back({size, std::vector<double>(i % 3 == 0 ? 3 : 1, time_s)});
  }
  return measurements;
}

// A job may report a size of its own at each step, and finding breakpoints among all took the cube of them.
TEST(FitCurveTest, OfVeryManySizesSomeAreFittedAndTheCurveIsTheSame) {
  const std::vector<SizedTimes> many = ManySizes(60'000);
  const CostModel model = FitCurve(many);
  EXPECT_LE(model.fit->points, kMostFittedSizes);
  EXPECT_GT(model.fit->points, kMostFittedSizes / 2);
  EXPECT_EQ(model.fit->outliers, 0);
  EXPECT_EQ(model.size_low, many.front().size);
  EXPECT_EQ(model.size_high, many.back().size);
  for (const SizedTimes& measured : many) {
    if (std::abs(std::log(measured.size / (1 << 20))) < 0.03) continue;  // Within a step's width of the jump.
    EXPECT_NEAR(TimeS(model.curve, measured.size, 1) / measured.times_s.front(), 1, 1e-3) << measured.size;
  }
  EXPECT_NEAR(FitLine(many).line.beta_s_per_unit * 40e9, 1, 0.1);
}

// Squared residuals, in variances, of the best line through points [first, last).
double PlainMisfit(const std::vector<TimePoint>& points, size_t first, size_t last, double variance) {
  const std::span run(points.data() + first, last - first);
  std::vector<double> weights;
  for (const TimePoint& point : run) weights.push_back(1 / (variance * point.time_s * point.time_s));
  const AlphaBeta line = WeightedLine(run, weights);
  double sum = 0;
  for (size_t i = 0; i < run.size(); ++i) {
    sum += weights[i] * std::pow(run[i].time_s - line.alpha_s - line.beta_s_per_unit * run[i].size, 2);
  }
  return sum;
}

TEST(BreakpointTest, AreThoseOfTheLeastCostOfAllCuts) {
  std::mt19937_64 random(TestSeed());
  std::uniform_real_distribution<double> jump(0.3, 3), noise(-0.01, 0.01);
  int compared = 0;
  for (int draw = 0; draw < 300; ++draw) {
    // A few regimes of any offset and rate, falling ones too; two repeats of each size.
    std::vector<SizedTimes> measurements;
    std::vector<TimePoint> points;
    double offset_s = 1e-5, rate = 1e-10;
    for (int i = 0; i < 12; ++i) {
      if (random() % 4 == 0) offset_s *= jump(random), rate *= jump(random);
      const double size = kKib * std::pow(2.5, i);
      const double time_s = (offset_s + rate * size) * std::exp(noise(random));
      measurements.push_back({size, {time_s * std::exp(-0.005), time_s * std::exp(0.005)}});
      points.push_back({size, time_s});
    }
    const Screened screened = Screen(SpansOf(measurements));
    if (screened.sizes.size() != points.size()) continue;  // Some size was not believed.
    const double variance = screened.noise * screened.noise / 2 + 0.02 * 0.02;
    // All cuts into runs of two or more, by their bits.
    double least = std::numeric_limits<double>::infinity(), found_cost = least;
    const std::vector<double> found = FindBreakpoints(screened);
    for (unsigned cuts = 0; cuts < 1u << 11; ++cuts) {
      double cost = 0;
      std::vector<double> breakpoints;
      size_t first = 0;
      bool legal = true;
      for (size_t last = 1; last <= 12; ++last) {
        if (last < 12 && (cuts >> (last - 1) & 1) == 0) continue;
        legal = legal && last - first >= 2;
        if (!legal) break;
        cost += 25 + PlainMisfit(points, first, last, variance);
        if (last < 12) breakpoints.push_back(points[last].size);
        first = last;
      }
      if (!legal) continue;
      least = std::min(least, cost);
      if (breakpoints == found) found_cost = cost;
    }
    ++compared;
    EXPECT_LE(found_cost, least * (1 + 1e-9)) << "draw " << draw;
  }
  EXPECT_GT(compared, 200);
}

// What a stranger can send within the bounds of samples: repeats that all lie apart, at as many sizes as are fitted.
TEST(FitCurveTest, ACurveOfRepeatsThatAllLieApartTakesNoLongTime) {
  std::vector<SizedTimes> measurements;
  for (int i = 0; i < kMostFittedSizes; ++i) {
    std::vector<double> times_s(400, 1e-6);  // So that the noise is taken for none.
    for (int k = 0; k < 330; ++k) times_s.push_back(1e-9 * std::pow(1.1001, k));
    measurements.push_back({1024 + 8.0 * i, times_s});
  }
  const std::clock_t before = std::clock();
  EXPECT_EQ(FitCurve(measurements).fit->points, kMostFittedSizes);
  const double cpu_s = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  std::printf("%.2f s of a processor\n", cpu_s);
#ifdef MOEPLAN_SANITIZED
  GTEST_SKIP() << "sanitizers slow the fit down";
#endif
  EXPECT_LT(cpu_s, 3);
}

TEST(FitCurveTest, RepeatsOfSizesThatAreNotFittedAreNoOutliers) {
  const std::vector<SizedTimes> many = ManySizes(2 * kMostFittedSizes);
  EXPECT_THAT(OutliersOf(SpansOf(many)), testing::Each(IsEmpty()));
}

TEST(FitCurveTest, AllSizesCountUpToTheCeiling) {
  EXPECT_EQ(FitCurve(ManySizes(kMostFittedSizes)).fit->points, kMostFittedSizes);
  EXPECT_LT(FitCurve(ManySizes(kMostFittedSizes + 1)).fit->points, kMostFittedSizes + 1);
}

}  // namespace
}  // namespace moeplan
