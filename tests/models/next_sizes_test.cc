#include "models/measurement/next_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace moeplan {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr double kKiB = 1024, kMiB = 1048576;

CostModel Curved(std::vector<TimePoint> points, double p50 = 0) {
  CostModel model = MakeCostModel(LogLog{std::move(points)});
  model.fit.emplace().relative_error_p50 = p50;
  return model;
}

// 1 KiB to 64 MiB by fours at 1 GB/s: a straight curve that predicts each of its points.
std::vector<TimePoint> Straight() {
  std::vector<TimePoint> points;
  for (double size = kKiB; size <= 64 * kMiB; size *= 4) points.push_back({size, size * 1e-9});
  return points;
}

TEST(NextSizesTest, ACurveThatPredictsItsPointsLeavesNothingOpen) {
  EXPECT_THAT(NextSizes(Curved(Straight()), {}, "bytes"), IsEmpty());
}

TEST(NextSizesTest, TheGapsBesideThePointThatIsPredictedWorstComeFirst) {
  std::vector<TimePoint> points = Straight();
  points[4].time_s *= 1.5;  // 256 KiB; left out it is predicted 33 % off, its neighbours 18 % (half of that in logs).
  const auto next = NextSizes(Curved(points), {}, "bytes");
  ASSERT_THAT(next, SizeIs(4));
  EXPECT_EQ(next[0].size, 128 * kKiB);
  EXPECT_EQ(next[1].size, 512 * kKiB);
  EXPECT_EQ(next[2].size, 32 * kKiB);
  EXPECT_EQ(next[3].size, 2 * kMiB);
  EXPECT_EQ(next[0].why,
            "Left out, 256 KiB is predicted 33 % off, and nothing was measured between 64 KiB and 256 KiB.");
}

TEST(NextSizesTest, WhereMeasuringEndedEarlyPlansAskBeyond) {
  // From 64 KiB to 4 MiB: 6 doublings below, 4 above, each worth the least share.
  const auto next = NextSizes(Curved({{64 * kKiB, 1e-4}, {4 * kMiB, 6.4e-3}}), {}, "bytes");
  ASSERT_THAT(next, SizeIs(2));
  EXPECT_EQ(next[0].size, kKiB);
  EXPECT_THAT(next[0].why, HasSubstr("as little as 1 KiB; below 64 KiB nothing was measured"));
  EXPECT_EQ(next[1].size, 64 * kMiB);
  EXPECT_THAT(next[1].why, HasSubstr("as much as 64 MiB; above 4 MiB"));
}

TEST(NextSizesTest, AWideGapCountsByItsDoublings) {
  // A line has no points of its own; it misses by 3 %, and flops have no usual range.
  CostModel line = MakeCostModel(AlphaBeta{1e-6, 1e-12});
  line.fit.emplace().relative_error_p50 = 0.03;
  const std::vector<double> measured = {1e9, 1.1e9, 4.4e9, 1e9, 281.6e9};
  const auto next = NextSizes(line, measured, "flops");
  ASSERT_THAT(next, SizeIs(2));
  EXPECT_EQ(next[0].size, std::round(std::sqrt(4.4e9 * 281.6e9)));
  EXPECT_EQ(next[0].why, "Nothing was measured between 4.4 Gflop and 282 Gflop, a gap of 6 doublings.");
  EXPECT_EQ(next[1].size, 2.2e9);
}

TEST(NextSizesTest, AtMostFiveAreNamedAndSizesThatWereMeasuredSinceCloseAGap) {
  std::vector<TimePoint> points = Straight();
  for (size_t i = 1; i < points.size(); i += 2) points[i].time_s *= 1.3;
  const auto next = NextSizes(Curved(points), {}, "bytes");
  EXPECT_THAT(next, SizeIs(kMostNextSizes));
  std::vector<double> measured;
  for (const NextSize& one : next) measured.push_back(one.size);
  for (const NextSize& one : NextSizes(Curved(points), measured, "bytes")) {
    EXPECT_THAT(measured, testing::Not(testing::Contains(one.size)));
  }
}

}  // namespace
}  // namespace moeplan
