// Which measurements a fit does not believe.
#include "models/fit/screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "models/fit/fit.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ScreenTest, OutliersAreThoseOfEachMeasurementInItsPlace) {
  // 1 ns a byte; the second has one repeat ten times too slow, the last, of a size measured before, is too slow whole.
  const std::vector<SizedTimes> measurements = {{4096, {4.1e-6, 4.09e-6, 4.11e-6}},
                                                {1024, {1.02e-6, 1.03e-5, 1.03e-6}},
                                                {2048, {2.04e-6, 2.05e-6, 2.06e-6}},
                                                {4096, {4.1e-5, 4.2e-5}}};
  EXPECT_THAT(OutliersOf(SpansOf(measurements)), ElementsAre(IsEmpty(), ElementsAre(1), IsEmpty(), ElementsAre(0, 1)));
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
    const std::vector<std::vector<int>> outliers = OutliersOf(SpansOf(measurements));
    ASSERT_EQ(outliers.size(), measurements.size());
    int all = 0;
    for (const std::vector<int>& of_one : outliers) all += static_cast<int>(of_one.size());
    EXPECT_EQ(all, Screen(SpansOf(measurements)).outliers);
  }
}

}  // namespace
}  // namespace moeplan
