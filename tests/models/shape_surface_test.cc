#include "models/cost/shape_surface.h"

#include <gtest/gtest.h>

#include <cmath>

namespace moeplan {
namespace {

double FlopsOf(const KernelShape& shape, double rows) {
  return 2.0 * shape.experts * rows * shape.in_features * shape.out_features;
}

KernelModel Point(Kernel kernel, const KernelShape& shape, double flops, double time_s) {
  return {.key = {.kernel = kernel, .bytes_per_element = 2, .shape = shape},
          .model = MakeCostModel(LogLog{{{flops, time_s}}})};
}

KernelModel Linear(int in_features, int out_features, double rows, double rate, int experts = 1) {
  const KernelShape shape = {.in_features = in_features, .out_features = out_features, .experts = experts};
  const double flops = FlopsOf(shape, rows);
  return Point(Kernel::kLinear, shape, flops, flops / rate);
}

ShapedTime Ask(const Profile& profile, const KernelShape& shape, double rows) {
  return ShapeSurface(profile, 2).Time(Kernel::kLinear, shape, FlopsOf(shape, rows)).value();
}

TEST(ShapeSurfaceTest, WhatWasMeasuredTakesThatLongAndWhatLiesBetweenTheMeanOfItsNeighbours) {
  Profile profile;
  profile.kernels = {Linear(1024, 1024, 1024, 1e14), Linear(4096, 1024, 1024, 4e14)};
  const ShapedTime exact = Ask(profile, {.in_features = 1024, .out_features = 1024, .experts = 1}, 1024);
  EXPECT_TRUE(exact.measured);
  EXPECT_EQ(exact.own_error_ratio, 1);
  EXPECT_NEAR(exact.time_s, 2.0 * 1024 * 1024 * 1024 / 1e14, 1e-18);
  // Half way in log2 of the features: the geometric mean of the rates.
  const ShapedTime between = Ask(profile, {.in_features = 2048, .out_features = 1024, .experts = 1}, 1024);
  EXPECT_FALSE(between.measured);
  EXPECT_FALSE(between.is_far);
  EXPECT_NEAR(between.time_s, 2.0 * 2048 * 1024 * 1024 / 2e14, 1e-15);
  // Each of the two, left out, is a factor of four off the other.
  EXPECT_NEAR(between.own_error_ratio, 4, 1e-9);
}

// A fit that is a line, as a file has it: no sizes stand beside it.
TEST(ShapeSurfaceTest, AShapeWhoseFitIsALineTakesThatAtAnySize) {
  Profile profile;
  const KernelShape shape = {.in_features = 1024, .out_features = 1024, .experts = 1};
  profile.kernels = {{.key = {.kernel = Kernel::kLinear, .bytes_per_element = 2, .shape = shape},
                      .model = MakeCostModel(AlphaBeta{1e-5, 1e-14})}};
  for (const double rows : {16.0, 1000.0, 65536.0}) {
    const ShapedTime time = Ask(profile, shape, rows);
    EXPECT_TRUE(time.measured);
    EXPECT_FALSE(time.is_far);
    EXPECT_NEAR(time.time_s, 1e-5 + 1e-14 * FlopsOf(shape, rows), 1e-15);
  }
  // Other shapes have it as a neighbour.
  EXPECT_TRUE(ShapeSurface(profile, 2).Has(Kernel::kLinear));
  EXPECT_FALSE(Ask(profile, {.in_features = 2048, .out_features = 1024, .experts = 1}, 512).measured);
}

TEST(ShapeSurfaceTest, FarFromEverythingIsSaidAndNothingIsShorterThanALaunch) {
  Profile profile;
  profile.kernels = {Linear(1024, 1024, 1024, 1e14)};
  const ShapedTime far = Ask(profile, {.in_features = 1024, .out_features = 1024, .experts = 1}, 64);
  EXPECT_TRUE(far.is_far);
  EXPECT_EQ(far.nearest.shape, profile.kernels[0].key.shape);
  EXPECT_NEAR(far.time_s, 2.0 * 1024 * 1024 * 1024 / 1e14, 1e-18);
}

// Attention was measured at long sequences alone; what a launch takes is known from products.
TEST(ShapeSurfaceTest, ACallMayBeShorterThanTheShortestOfItsKernel) {
  Profile profile;
  const KernelShape shape = {.heads = 8, .kv_heads = 8, .query_key_dim = 64, .value_dim = 64, .sequence = 4096};
  const double flops = AttentionFlops(shape);
  profile.kernels = {Point(Kernel::kAttention, shape, flops, flops / 1e14), Linear(64, 64, 64, 1e12)};
  const KernelShape shorter = {.heads = 8, .kv_heads = 8, .query_key_dim = 64, .value_dim = 64, .sequence = 512};
  const auto time = ShapeSurface(profile, 2).Time(Kernel::kAttention, shorter, AttentionFlops(shorter));
  ASSERT_TRUE(time.has_value());
  EXPECT_TRUE(time->is_far);
  EXPECT_NEAR(time->time_s, AttentionFlops(shorter) / 1e14, 1e-12);
}

TEST(ShapeSurfaceTest, LocalExpertsAreAnAxisOfTheirOwn) {
  Profile profile;
  profile.kernels = {Linear(1024, 1024, 512, 4e14, /*experts=*/1), Linear(1024, 1024, 512, 1e14, /*experts=*/16)};
  const ShapedTime grouped = Ask(profile, {.in_features = 1024, .out_features = 1024, .experts = 16}, 512);
  EXPECT_TRUE(grouped.measured);
  EXPECT_NEAR(grouped.time_s, 16 * 2.0 * 512 * 1024 * 1024 / 1e14, 1e-15);
}

TEST(ShapeSurfaceTest, NoProductIsFasterThanWhatLongOnesHold) {
  Profile profile;
  profile.kernels = {Linear(1024, 1024, 1024, 3e14)};  // 7 us, on a cool card.
  const KernelShape scores = {.heads = 8, .kv_heads = 8, .query_key_dim = 64, .value_dim = 64, .sequence = 1024};
  profile.kernels.push_back(Point(Kernel::kAttention, scores, 1e9, 1e9 / 9e14));
  for (int i = 0; i < 7; ++i) profile.kernels.push_back(Linear(16384, 16384, 1024 + i, 1.9e14 + i * 1e12));
  EXPECT_EQ(ShapeSurface(profile, 2).sustained_flops_per_s(), 0) << "too few";
  profile.kernels.push_back(Linear(16384, 16384, 2048, 2.5e14));
  const ShapeSurface surface(profile, 2);
  // Eight of 1.90 to 1.96 and 2.5: the fourth.
  EXPECT_NEAR(surface.sustained_flops_per_s(), 1.93e14, 1e10);
  const KernelShape small = {.in_features = 1024, .out_features = 1024, .experts = 1};
  EXPECT_NEAR(surface.Time(Kernel::kLinear, small, FlopsOf(small, 1024))->time_s, FlopsOf(small, 1024) / 1.93e14, 1e-9);
  // Half of an attention's flops are masked, so that it may count twice as many a second.
  EXPECT_NEAR(surface.Time(Kernel::kAttention, scores, 1e9)->time_s, 1e9 / (2 * 1.93e14), 1e-9);
  EXPECT_GT(surface.common_error_ratio(), 1);
  EXPECT_LT(surface.common_error_ratio(), 2.5 / 1.93);
}

TEST(ShapeSurfaceTest, OtherElementSizesAndOtherKernelsDoNotAnswer) {
  Profile profile;
  profile.kernels = {Linear(1024, 1024, 1024, 1e14)};
  const KernelShape shape = {.in_features = 1024, .out_features = 1024, .experts = 1};
  EXPECT_FALSE(ShapeSurface(profile, 4).Time(Kernel::kLinear, shape, 1e9).has_value());
  EXPECT_FALSE(ShapeSurface(profile, 2).Time(Kernel::kLinearWeightGradient, shape, 1e9).has_value());
}

}  // namespace
}  // namespace moeplan
