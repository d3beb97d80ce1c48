// Which measurements a fit does not believe.
#include "models/fit/screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "models/fit/fit.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

using testing::ElementsAre;

TEST(ScreenTest, OutliersAreThoseOfEachMeasurementInItsPlace) {
  // 1 ns a byte; the second has one repeat ten times too slow, the last, of a size measured before, is too slow whole.
  const std::vector<SizedTimes> measurements = {{4096, {4.1e-6, 4.09e-6, 4.11e-6}},
                                                {1024, {1.02e-6, 1.03e-6, 1.03e-5}},
                                                {2048, {2.04e-6, 2.05e-6, 2.06e-6}},
                                                {4096, {4.1e-5, 4.2e-5}}};
  EXPECT_THAT(OutliersOf(SpansOf(measurements)), ElementsAre(0, 1, 0, 2));
  EXPECT_EQ(FitCurve(measurements).fit->outliers, 3);
}

TEST(ScreenTest, TheyAddUpToWhatTheFitCounts) {
  std::mt19937_64 random(TestSeed());
  std::normal_distribution<double> noise;
  for (int round = 0; round < 200; ++round) {
    std::vector<SizedTimes> measurements;
    const int count = 1 + static_cast<int>(random() % 12);
    for (int i = 0; i < count; ++i) {
      SizedTimes& one = measurements.emplace_back();
      one.size = std::exp2(10 + static_cast<double>(random() % 8));
      for (int repeat = 0; repeat < 1 + static_cast<int>(random() % 6); ++repeat) {
        const double slow = random() % 5 == 0 ? 2 + static_cast<double>(random() % 9) : 1;
        one.times_s.push_back((1e-5 + one.size * 1e-9) * std::exp(0.02 * noise(random)) * slow);
      }
    }
    const std::vector<int> outliers = OutliersOf(SpansOf(measurements));
    ASSERT_EQ(outliers.size(), measurements.size());
    EXPECT_EQ(std::accumulate(outliers.begin(), outliers.end(), 0), Screen(SpansOf(measurements)).outliers);
  }
}

}  // namespace
}  // namespace moeplan
