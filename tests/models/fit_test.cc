// Planted lines and curves come back from noise and outliers; no expectation is copied from output.
#include "models/fit/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <ctime>
#include <functional>
#include <limits>
#include <random>
#include <span>

#include "models/fit/breakpoints.h"
#include "models/fit/fitted_sizes.h"
#include "models/fit/robust_line.h"
#include "models/fit/statistics.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kSeed = 20240607;
constexpr double kKib = 1024;
constexpr double kSmallest = kKib, kLargest = 256 * kKib * kKib;

using TimeOfSize = std::function<double(double)>;

struct Measuring {
  double size_step = 2;
  int repeats = 9;
  double noise = 0.03;
  double slow_share = 0.3;  // Ten times too slow.
};

class Machine {
 public:
  explicit Machine(uint64_t seed) : random_(seed) {}

  double LogUniform(double low, double high) { return low * std::pow(high / low, uniform_(random_)); }
  int Index(int first, int last) { return std::uniform_int_distribution(first, last)(random_); }

  double MeasureOnce(double time_s, double noise) { return time_s * (1 + noise * normal_(random_)); }

  std::vector<SizedTimes> Measure(const Measuring& measuring, const TimeOfSize& time_s) {
    std::vector<SizedTimes> measurements;
    for (double size = kSmallest; size <= kLargest; size *= measuring.size_step) {
      measurements.push_back({size, {}});
      for (int i = 0; i < measuring.repeats; ++i) {
        const double slowdown = uniform_(random_) < measuring.slow_share ? 10 : 1;
        measurements.back().times_s.push_back(slowdown * MeasureOnce(time_s(size), measuring.noise));
      }
    }
    return measurements;
  }

  // alpha from 4 to 10 000 times beta·1 KiB: both can be told from these sizes.
  AlphaBeta Line() {
    const double alpha_s = LogUniform(1e-6, 1e-3);
    return {alpha_s, alpha_s / kKib / LogUniform(4, 1e4)};
  }

 private:
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
};

TimeOfSize Times(const AlphaBeta& line) {
  return [line](double size) { return line.alpha_s + line.beta_s_per_unit * size; };
}

double RelativeError(double found, double planted) { return std::abs(found / planted - 1); }

const AlphaBeta& LineOf(const CostModel& model) {
  return model.summary ? *model.summary : std::get<AlphaBeta>(model.curve);
}

TEST(StatisticsTest, QuantilesAreThoseOfTheTables) {
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(Quantile({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0.95), 10);
  EXPECT_EQ(Quantile({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0.5), 5);
  EXPECT_NEAR(StudentQuantile95(1), 6.314, 1e-3);
  EXPECT_NEAR(StudentQuantile95(3), 2.353, 1e-2);
  EXPECT_NEAR(StudentQuantile95(10), 1.812, 1e-3);
}

TEST(StatisticsTest, WhereAMedianLiesIsSaidByRank) {
  // Of 9 fair coins at most one shows heads with probability 10/512, twice that is below 0.1; at most two: 46/512.
  const MedianInterval nine = MedianInterval90({9, 1, 8, 2, 7, 3, 6, 4, 5});
  EXPECT_EQ(nine.low, 2);
  EXPECT_EQ(nine.high, 8);
  const MedianInterval five = MedianInterval90({5, 1, 4, 2, 3});  // None: 1/32.
  EXPECT_EQ(five.low, 1);
  EXPECT_EQ(five.high, 5);
  EXPECT_TRUE(std::isinf(MedianInterval90({1, 2, 3, 4}).low));
  EXPECT_TRUE(std::isinf(MedianInterval90({}).high));
}

TEST(StatisticsTest, MediansLieWithinTheirIntervalNineTimesOfTen) {
  std::mt19937_64 engine(TestSeed());
  for (const int count : {5, 9, 18}) {
    int inside = 0;
    constexpr int kDraws = 4000;
    for (int draw = 0; draw < kDraws; ++draw) {
      std::vector<double> values;
      for (int i = 0; i < count; ++i) values.push_back(std::exponential_distribution(1.0)(engine));
      const MedianInterval interval = MedianInterval90(values);
      inside += interval.low <= std::log(2.0) && std::log(2.0) <= interval.high;
    }
    EXPECT_GE(inside, 0.88 * kDraws) << count;  // At least 0.9 are expected, give or take 0.005.
  }
}

TEST(StatisticsTest, TheNextMagnitudeExceedsTheBoundOneTimeInTen) {
  EXPECT_EQ(NextMagnitudeBound90({}), 0);
  // Nine values: the next one is the largest of ten with probability 1/10. Nineteen: rank 0.9·20 = 18.
  EXPECT_EQ(NextMagnitudeBound90({1, 2, 3, 4, 5, 6, 7, 8, 9}), 9);
  EXPECT_EQ(NextMagnitudeBound90({19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}), 18);
  // One value: 1 / (1 + c) = 0.1 at c = 9. Two: 2 / ((1 + c)(2 + c)) = 0.1 at c = (sqrt(81) - 3) / 2 = 3.
  EXPECT_NEAR(NextMagnitudeBound90({2}), 18, 1e-9);
  EXPECT_NEAR(NextMagnitudeBound90({1, 2}), 6, 1e-9);
}

TEST(ScreenTest, SixSlowRepeatsOfNineDoNotWinAgainstTheirNeighbours) {
  const Screened screened = Screen(SpansOf(
      {{1, {1.00, 1.02, 0.98}}, {2, {1.01, 0.99, 1.00, 10.1, 9.9, 10.0, 10.2, 9.8, 10.0}}, {4, {1.02, 1.00, 0.99}}}));
  EXPECT_EQ(screened.outliers, 6);
  EXPECT_EQ(screened.points, 3);
  ASSERT_EQ(screened.sizes.size(), 3u);
  EXPECT_NEAR(std::exp(screened.sizes[1].LogMedian()), 1, 1e-9);
  EXPECT_EQ(screened.sizes[1].log_times.size(), 3u);
}

TEST(ScreenTest, ALoneFastRepeatIsAnOutlierToo) {
  const Screened screened = Screen(SpansOf({{1, {1, 1, 1, 1, 1}}, {2, {0.1, 1, 1, 1, 1}}, {4, {1, 1, 1, 1, 1}}}));
  EXPECT_EQ(screened.outliers, 1);
  EXPECT_EQ(screened.sizes[1].LogMedian(), 0);
}

TEST(ScreenTest, ASizeThatWasAlwaysSlowIsLeftOut) {
  const Screened screened = Screen(SpansOf({{1, {1}}, {2, {1}}, {4, {10}}, {8, {1}}, {16, {1}}}));
  EXPECT_EQ(screened.outliers, 1);
  EXPECT_EQ(screened.points, 5);
  EXPECT_EQ(screened.sizes.size(), 4u);
}

TEST(ScreenTest, AProtocolSwitchIsNoOutlier) {
  // Threefold up and down again, as low-latency protocols do on real links.
  const Screened screened = Screen(SpansOf({{1, {1}}, {2, {3}}, {4, {1}}, {8, {3}}, {16, {3.2}}, {32, {1.5}}}));
  EXPECT_EQ(screened.outliers, 0);
  EXPECT_EQ(screened.sizes.size(), 6u);
}

TEST(ScreenTest, MergesSizesInAnyOrder) {
  const Screened screened = Screen(SpansOf({{2, {1.2}}, {1, {1.1, 1.0}}, {2, {1.3}}}));
  ASSERT_EQ(screened.sizes.size(), 2u);
  EXPECT_THAT(screened.sizes[0].log_times, ElementsAre(std::log(1.0), std::log(1.1)));
  EXPECT_THAT(screened.sizes[1].log_times, ElementsAre(std::log(1.2), std::log(1.3)));
}

struct Recovery {
  double worst_alpha = 0, worst_beta = 0;
  int missed = 0;
  int invented = 0;  // Draws with a breakpoint.
  int alpha_covered = 0, beta_covered = 0;
};

Recovery RecoverLines(const Measuring& measuring, int draws) {
  Machine machine(kSeed);
  Recovery recovery;
  for (int draw = 0; draw < draws; ++draw) {
    const AlphaBeta planted = machine.Line();
    const CostModel model = FitCurve(machine.Measure(measuring, Times(planted)));
    const double alpha_error = RelativeError(LineOf(model).alpha_s, planted.alpha_s);
    const double beta_error = RelativeError(LineOf(model).beta_s_per_unit, planted.beta_s_per_unit);
    recovery.worst_alpha = std::max(recovery.worst_alpha, alpha_error);
    recovery.worst_beta = std::max(recovery.worst_beta, beta_error);
    recovery.missed += alpha_error > 0.05 || beta_error > 0.05;
    recovery.invented += !model.fit->breakpoints.empty();
    recovery.alpha_covered += model.fit->alpha_low_s <= planted.alpha_s && planted.alpha_s <= model.fit->alpha_high_s;
    recovery.beta_covered += model.fit->beta_low_s_per_unit <= planted.beta_s_per_unit &&
                             planted.beta_s_per_unit <= model.fit->beta_high_s_per_unit;
  }
  std::printf(
      "seed %llu, step %g, %g of the times slow: worst error of alpha %.4f, of beta %.4f; breakpoints in %d, "
      "alpha in its interval in %d, beta in %d of %d draws\n",
      static_cast<unsigned long long>(kSeed), measuring.size_step, measuring.slow_share, recovery.worst_alpha,
      recovery.worst_beta, recovery.invented, recovery.alpha_covered, recovery.beta_covered, draws);
  return recovery;
}

class RecoveryTest : public testing::TestWithParam<Measuring> {};

TEST_P(RecoveryTest, AThirdOfTheTimesAtTenfoldMovesAlphaAndBetaByNoMoreThanFivePerCent) {
  constexpr int kDraws = 600;
  const Recovery recovery = RecoverLines(GetParam(), kDraws);
  EXPECT_EQ(recovery.missed, 0);
  EXPECT_LE(recovery.invented, kDraws / 50);
  // Of 600 draws 540 ± 7.3 lie in a 90 % interval; five deviations are allowed.
  EXPECT_NEAR(recovery.alpha_covered, 0.9 * kDraws, 37);
  EXPECT_NEAR(recovery.beta_covered, 0.9 * kDraws, 37);
}

INSTANTIATE_TEST_SUITE_P(Grids, RecoveryTest,
                         testing::Values(Measuring{}, Measuring{.slow_share = 0}, Measuring{.slow_share = 0.33},
                                         Measuring{.size_step = 4}, Measuring{.size_step = 4, .slow_share = 0.33},
                                         Measuring{.size_step = std::sqrt(2)}));

TEST(FitLineTest, AnExactLineComesBackExactly) {
  Machine machine(kSeed);
  const AlphaBeta planted = {2e-5, 3e-11};
  const LineFit fit = FitLine(machine.Measure({.noise = 0, .slow_share = 0}, Times(planted)));
  EXPECT_LT(RelativeError(fit.line.alpha_s, planted.alpha_s), 1e-9);
  EXPECT_LT(RelativeError(fit.line.beta_s_per_unit, planted.beta_s_per_unit), 1e-9);
}

TEST(FitLineTest, NeitherParameterIsEverNegative) {
  // Through (1, 1 s), (2, 4 s), (4, 16 s) least squares wants alpha < 0; through falling times beta < 0.
  const LineFit steep = FitLine({{1, {1}}, {2, {4}}, {4, {16}}});
  EXPECT_EQ(steep.line.alpha_s, 0);
  EXPECT_GT(steep.line.beta_s_per_unit, 0);
  const LineFit falling = FitLine({{1, {3}}, {2, {2}}, {4, {1}}});
  EXPECT_EQ(falling.line.beta_s_per_unit, 0);
  EXPECT_GT(falling.line.alpha_s, 0);
}

TEST(FitLineTest, TwoSizesGiveTheLineThroughThemAndAllThatSignsAllow) {
  // (2, 5 s), (4, 7 s): beta = 1, alpha = 3. alpha can be no more than 5, beta no more than min(5/2, 7/4).
  const LineFit fit = FitLine({{2, {5}}, {4, {7}}});
  EXPECT_NEAR(fit.line.alpha_s, 3, 1e-9);
  EXPECT_NEAR(fit.line.beta_s_per_unit, 1, 1e-9);
  EXPECT_EQ(fit.alpha_low_s, 0);
  EXPECT_NEAR(fit.alpha_high_s, 5, 1e-9);
  EXPECT_NEAR(fit.beta_high_s_per_unit, 1.75, 1e-9);
}

TEST(FitLineTest, RepeatsOfASizeCountAsTheirGeometricMean) {
  // Logarithms of 0, 0, 0, 0.02 and 0.08 above the line: their mean is 0.02, their median 0.
  const AlphaBeta planted = {2e-5, 3e-11};
  std::vector<SizedTimes> measurements;
  for (double size = kSmallest; size <= kLargest; size *= 4) {
    const double time_s = Times(planted)(size);
    measurements.push_back({size, {}});
    for (const double skew : {0.0, 0.0, 0.0, 0.02, 0.08})
      measurements.back().times_s.push_back(time_s * std::exp(skew));
  }
  const LineFit fit = FitLine(measurements);
  EXPECT_NEAR(fit.line.alpha_s, planted.alpha_s * std::exp(0.02), 1e-3 * planted.alpha_s);
  EXPECT_NEAR(fit.line.beta_s_per_unit, planted.beta_s_per_unit * std::exp(0.02), 1e-3 * planted.beta_s_per_unit);
}

// A line has two parameters, so that few sizes leave few degrees of freedom: n - 2.
TEST(FitLineTest, IntervalsOfFewSizesHoldTheTruthNineTimesOfTen) {
  constexpr int kLines = 4000;
  for (const int sizes : {3, 4}) {
    Machine machine(kSeed);
    int held_alpha = 0, held_beta = 0;
    for (int i = 0; i < kLines; ++i) {
      const AlphaBeta planted = {1, 1};
      std::vector<SizedTimes> measurements;
      for (int at = 0; at < sizes; ++at) {
        const double size = 1 + 2.0 * at / (sizes - 1);
        measurements.push_back({size, {}});
        for (int repeat = 0; repeat < 9; ++repeat) {
          measurements.back().times_s.push_back(machine.MeasureOnce(Times(planted)(size), 0.03));
        }
      }
      const LineFit fit = FitLine(measurements);
      held_alpha += fit.alpha_low_s <= planted.alpha_s && planted.alpha_s <= fit.alpha_high_s;
      held_beta +=
          fit.beta_low_s_per_unit <= planted.beta_s_per_unit && planted.beta_s_per_unit <= fit.beta_high_s_per_unit;
    }
    EXPECT_NEAR(held_alpha, 0.9 * kLines, 0.02 * kLines) << sizes << " sizes";
    EXPECT_NEAR(held_beta, 0.9 * kLines, 0.02 * kLines) << sizes << " sizes";
  }
}

// Two regimes that meet at sizes[at].
struct Switch {
  const char* name;
  TimeOfSize (*times)(const AlphaBeta& below, double at_size);
};

TimeOfSize OtherProtocol(const AlphaBeta& below, double at_size) {
  const AlphaBeta above = {3 * below.alpha_s, below.beta_s_per_unit / 4};
  return [=](double size) { return size < at_size ? Times(below)(size) : Times(above)(size); };
}
TimeOfSize HalfSlower(const AlphaBeta& below, double at_size) {
  return [=](double size) { return Times(below)(size) * (size < at_size ? 1 : 1.5); };
}
TimeOfSize LatencyJump(const AlphaBeta& below, double at_size) {
  const double jump_s = 0.5 * Times(below)(at_size);
  return [=](double size) { return Times(below)(size) + (size < at_size ? 0 : jump_s); };
}

class BreakpointTest : public testing::TestWithParam<std::tuple<Switch, double>> {};

TEST_P(BreakpointTest, APlantedSwitchIsFoundWithinOneSizeStep) {
  constexpr int kDraws = 300;
  const auto& [protocol_switch, step] = GetParam();
  const int count = static_cast<int>(std::lround(std::log(kLargest / kSmallest) / std::log(step))) + 1;
  Machine machine(kSeed);
  int found = 0, alone = 0, lines = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    const double at_size = kSmallest * std::pow(step, machine.Index(2, count - 2));
    const TimeOfSize times = protocol_switch.times(machine.Line(), at_size);
    const CostModel model = FitCurve(machine.Measure({.size_step = step}, times));
    found += std::ranges::any_of(model.fit->breakpoints, [&, step = step](double size) {
      return size >= at_size / step * 0.999 && size <= at_size * step * 1.001;
    });
    alone += model.fit->breakpoints.size() == 1;
    lines += model.fit->chosen == "alphaBeta";
  }
  std::printf("seed %llu, %s, step %g: found %d, alone %d of %d\n", static_cast<unsigned long long>(kSeed),
              protocol_switch.name, step, found, alone, kDraws);
  EXPECT_GE(found, kDraws * 99 / 100);
  EXPECT_GE(alone, kDraws * 98 / 100);
  EXPECT_EQ(lines, 0);  // No line plans a curve of two regimes.
}

INSTANTIATE_TEST_SUITE_P(Switches, BreakpointTest,
                         testing::Combine(testing::Values(Switch{"alpha x3 and beta / 4", OtherProtocol},
                                                          Switch{"times x1.5", HalfSlower},
                                                          Switch{"latency jump", LatencyJump}),
                                          testing::Values(2.0, 4.0)));

TEST(BreakpointTest, IsTheFirstMeasuredSizeOfTheNewRegime) {
  Machine machine(kSeed);
  const TimeOfSize times = [](double size) { return size < 64 * kKib ? 1e-5 : 2e-5; };
  const CostModel model = FitCurve(machine.Measure({.noise = 0, .slow_share = 0}, times));
  EXPECT_THAT(model.fit->breakpoints, ElementsAre(64 * kKib));
}

TEST(FitCurveTest, PointsAreTheMediansOfTheRepeatsThatWereNotRejected) {
  // No line, no chord: sizes 1, 2, 4, …; the time falls by a third at every other size.
  std::vector<SizedTimes> measurements;
  for (int i = 0; i < 8; ++i) {
    const double time_s = i % 2 == 0 ? 3 : 2;
    measurements.push_back({std::exp2(i), {time_s, 0.99 * time_s, 1.02 * time_s, 11 * time_s}});
  }
  const CostModel model = FitCurve(measurements);
  ASSERT_TRUE(std::holds_alternative<LogLog>(model.curve));
  for (int i = 0; i < 8; ++i) {
    EXPECT_NEAR(TimeS(model.curve, std::exp2(i), 1), i % 2 == 0 ? 3 : 2, 1e-9);
  }
  EXPECT_EQ(model.fit->chosen, "logLog");
  EXPECT_EQ(model.fit->outliers, 8);
  EXPECT_EQ(model.fit->points, 8);
  EXPECT_TRUE(model.summary.has_value());
  EXPECT_EQ(model.size_low, 1);
  EXPECT_EQ(model.size_high, 128);
}

TEST(FitCurveTest, AStraightLineIsPlannedWithALine) {
  Machine machine(kSeed);
  const CostModel model = FitCurve(machine.Measure({.noise = 0, .slow_share = 0}, Times({1e-5, 1e-10})));
  EXPECT_EQ(model.fit->chosen, "alphaBeta");
  EXPECT_FALSE(model.summary.has_value());
  EXPECT_LT(model.fit->relative_error_p95, 1e-9);
  EXPECT_EQ(model.size_low, kSmallest);
  EXPECT_EQ(model.size_high, kLargest);
}

TEST(FitCurveTest, APowerLawIsPlannedWithLogLog) {
  Machine machine(kSeed);
  const TimeOfSize power = [](double size) { return 1e-6 * std::sqrt(size); };
  EXPECT_EQ(FitCurve(machine.Measure({.slow_share = 0}, power)).fit->chosen, "logLog");
}

TEST(FitCurveTest, StraightPiecesInSizeArePlannedInterpolated) {
  // Two lines that meet at (32, 52 s): a chord in size is exact on either, a chord in logarithms is not.
  const TimeOfSize pieces = [](double size) { return size < 32 ? 20 + size : 44 + size / 4; };
  std::vector<SizedTimes> measurements;
  for (double size = 1; size <= 512; size *= 2) measurements.push_back({size, {pieces(size), pieces(size)}});
  EXPECT_EQ(FitCurve(measurements).fit->chosen, "interpolated");
}

TEST(FitCurveTest, OneSizeMakesAModel) {
  const CostModel model = FitCurve({{100, {2.0, 2.1, 1.9, 20}}});
  EXPECT_EQ(model.curve, Curve(LogLog{{{100, TimeS(model.curve, 100, 1)}}}));
  EXPECT_NEAR(TimeS(model.curve, 100, 1), 2, 1e-9);
  EXPECT_NEAR(TimeS(model.curve, 200, 1), 4, 1e-9);
  EXPECT_TRUE(ValidateCurve(*model.summary, "summary").ok());
  EXPECT_EQ(model.fit->outliers, 1);
  EXPECT_EQ(model.fit->points, 1);
  EXPECT_LT(model.fit->interval_low_ratio, 1.9 / 2);
  EXPECT_GT(model.fit->interval_high_ratio, 2.1 / 2);
}

TEST(FitCurveTest, OneTimeMakesAModelWithoutWidth) {
  const CostModel model = FitCurve({{100, {2.0}}});
  EXPECT_NEAR(TimeS(model.curve, 100, 1), 2, 1e-12);
  EXPECT_EQ(model.fit->interval_low_ratio, 1);
  EXPECT_EQ(model.fit->interval_high_ratio, 1);
  EXPECT_THAT(model.fit->breakpoints, IsEmpty());
}

TEST(FitCurveTest, ThreeSizesOfOneTimeAreEnoughForEveryFigure) {
  const CostModel model = FitCurve({{1, {1.0}}, {2, {1.5}}, {4, {2.7}}});
  EXPECT_TRUE(ValidateCurve(model.curve, "curve").ok());
  for (const double figure : {model.fit->alpha_low_s, model.fit->alpha_high_s, model.fit->beta_low_s_per_unit,
                              model.fit->beta_high_s_per_unit, model.fit->interval_low_ratio,
                              model.fit->interval_high_ratio, model.fit->relative_error_p95}) {
    EXPECT_TRUE(std::isfinite(figure));
  }
}

class CoverageTest : public testing::TestWithParam<Measuring> {};

TEST_P(CoverageTest, NinetyPerCentOfNewMeasurementsLieInTheInterval) {
  Machine machine(kSeed);
  const Measuring& measuring = GetParam();
  int covered = 0, asked = 0;
  for (int draw = 0; draw < 300; ++draw) {
    const TimeOfSize times = Times(machine.Line());
    const CostModel model = FitCurve(machine.Measure(measuring, times));
    for (double size = kSmallest; size < kLargest; size *= std::sqrt(measuring.size_step), ++asked) {
      const double time_s = machine.MeasureOnce(times(size), measuring.noise);
      const PricedTime price = Price(model, size, 1);
      covered += price.low_s <= time_s && time_s <= price.high_s;
    }
  }
  const double coverage = static_cast<double>(covered) / asked;
  std::printf("seed %llu: coverage %.3f\n", static_cast<unsigned long long>(kSeed), coverage);
  EXPECT_GE(coverage, 0.85);
  EXPECT_LE(coverage, 0.97);
}

INSTANTIATE_TEST_SUITE_P(Lines, CoverageTest,
                         testing::Values(Measuring{}, Measuring{.slow_share = 0}, Measuring{.size_step = 4},
                                         Measuring{.repeats = 3}, Measuring{.repeats = 1, .slow_share = 0}));

TEST(FitCurveTest, IsFastEnoughToRefitWhileMeasuring) {
  Machine machine(kSeed);
  const std::vector<SizedTimes> measurements = machine.Measure({}, Times({1e-5, 1e-10}));
  double fastest_s = 1;
  for (int i = 0; i < 20; ++i) {
    const auto start = std::chrono::steady_clock::now();
    FitCurve(measurements);
    fastest_s = std::min(fastest_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::printf("%.3f ms for 19 sizes of 9 repeats\n", fastest_s * 1e3);
#ifdef MOEPLAN_SANITIZED
  GTEST_SKIP() << "sanitizers slow the fit down";
#endif
  EXPECT_LT(fastest_s, 5e-3);
}

SampleSet TwoKeys() {
  const CollectiveKey all_to_all = {.collective = Collective::kAllToAll, .group = {2, 2}};
  const CollectiveKey all_gather = {.collective = Collective::kAllGather, .group = {2, 2}};
  const KernelKey gemm = {.kernel = Kernel::kExpertGemm};
  const KernelKey copy = {.kernel = Kernel::kDeviceCopy};
  return {.name = "two",
          .cluster = {.nodes = 1, .gpus_per_node = 2},
          .samples = {{gemm, 1e9, {1e-3}},
                      {all_gather, 1024, {3e-6}},
                      {all_to_all, 2048, {2e-6}},
                      {all_to_all, 1024, {1e-6, 1.02e-6}},
                      {copy, 1024, {4e-6}},
                      {all_to_all, 1024, {1.01e-6}}}};
}

TEST(FitProfileTest, MergesSamplesOfEqualKeysAndSortsByKey) {
  const auto profile = FitProfile(TwoKeys());
  ASSERT_TRUE(profile.ok()) << profile.status().message();
  EXPECT_EQ(profile->name, "two");
  EXPECT_EQ(profile->cluster, TwoKeys().cluster);
  ASSERT_EQ(profile->collectives.size(), 2u);
  EXPECT_EQ(profile->collectives[0].key.collective, Collective::kAllToAll);
  EXPECT_EQ(profile->collectives[1].key.collective, Collective::kAllGather);
  EXPECT_EQ(profile->collectives[0].model.fit->points, 2);
  // The median of 1, 1.01 and 1.02 µs.
  EXPECT_NEAR(TimeS(profile->collectives[0].model.curve, 1024, 0.5), 1.01e-6, 1e-12);
  ASSERT_EQ(profile->kernels.size(), 2u);
  EXPECT_EQ(profile->kernels[0].key.kernel, Kernel::kDeviceCopy);
  EXPECT_EQ(profile->kernels[1].model.size_high, 1e9);  // Flops.
  EXPECT_TRUE(ValidateProfile(*profile).ok()) << ValidateProfile(*profile).message();
}

TEST(FitProfileTest, TheOrderOfTheSamplesDoesNotMatter) {
  SampleSet reversed = TwoKeys();
  std::ranges::reverse(reversed.samples);
  EXPECT_EQ(*FitProfile(reversed), *FitProfile(TwoKeys()));
}

TEST(FitProfileTest, RefusesSamplesThatAreNoMeasurements) {
  SampleSet samples = TwoKeys();
  samples.samples[1].times_s = {0};
  EXPECT_THAT(FitProfile(samples).status().message(), HasSubstr("samples[1].timeS[0]: found 0"));
  samples.samples.clear();
  EXPECT_EQ(FitProfile(samples).status().code(), StatusCode::kInvalidInput);
}

TEST(FitProfileTest, StopsBetweenCurves) {
  std::stop_source stop;
  int fitted = 0;
  const auto count = [&](const CostKey&, const std::vector<SizedTimes>& measurements) {
    if (++fitted == 2) stop.request_stop();
    return FitCurve(measurements);
  };
  EXPECT_EQ(FitProfile(TwoKeys(), stop.get_token(), count).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(fitted, 2) << "of four curves";
  EXPECT_EQ(*FitProfile(TwoKeys(), {}, count), *FitProfile(TwoKeys()));
}

}  // namespace
}  // namespace moeplan
