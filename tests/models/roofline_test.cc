#include "models/cost/roofline.h"

#include <gtest/gtest.h>

namespace moeplan {
namespace {

// Ten processors of a tile each; moving is free unless a test says otherwise.
constexpr Roofline kRoofline = {.launch_s = 1,
                                .flops_per_s = 1e9,
                                .bytes_per_s = 1e30,
                                .processors = 10,
                                .attention_flops_per_s = 1e9,
                                .attention_gradient_flops_per_s = 5e8};

double LinearS(const Roofline& roofline, Kernel kernel, double rows, int in, int out, int experts = 1) {
  const KernelShape shape = {.in_features = in, .out_features = out, .experts = experts};
  return RooflineS(roofline, kernel, shape, 2.0 * experts * rows * in * out, /*bytes_per_element=*/2) - 1;
}

constexpr double kTileFlops = 2.0 * 128 * 128;

TEST(RooflineTest, WholeWavesOfTilesAreComputed) {
  // 4 × 5 tiles are two waves of ten processors; one row more is 25 tiles, three waves.
  EXPECT_NEAR(LinearS(kRoofline, Kernel::kLinear, 4 * 128, 256, 5 * 128), 2 * 10 * kTileFlops * 256 / 1e9, 1e-9);
  EXPECT_NEAR(LinearS(kRoofline, Kernel::kLinear, 4 * 128 + 1, 256, 5 * 128), 3 * 10 * kTileFlops * 256 / 1e9, 1e-9);
  // Many waves: what the last one leaves idle is lost in the rest.
  EXPECT_NEAR(LinearS(kRoofline, Kernel::kLinear, 128, 256, 401 * 128), 401 * kTileFlops * 256 / 1e9, 1e-9);
}

TEST(RooflineTest, LongSumsAreCutWhereThereAreFewTiles) {
  // One tile of a sum of 8192 on ten processors: eight pieces of at least 1024.
  EXPECT_NEAR(LinearS(kRoofline, Kernel::kLinear, 128, 8192, 128), 10 * kTileFlops * 8192 / 8 / 1e9, 1e-9);
  EXPECT_NEAR(LinearS(kRoofline, Kernel::kLinear, 128, 512, 128), 10 * kTileFlops * 512 / 1e9, 1e-9);
}

TEST(RooflineTest, EachProductHasItsOwnSumAndTiles) {
  // 1280 rows, 128 in, 2560 out. Input gradient: 10 tiles, sums of 2560; weight gradient: 20 tiles, sums of 1280.
  EXPECT_NEAR(LinearS(kRoofline, Kernel::kLinearInputGradient, 1280, 128, 2560), 10 * kTileFlops * 2560 / 1e9, 1e-9);
  EXPECT_NEAR(LinearS(kRoofline, Kernel::kLinearWeightGradient, 1280, 128, 2560), 2 * 10 * kTileFlops * 1280 / 1e9,
              1e-9);
  // Experts share the processors: 20 of 3 tiles each.
  EXPECT_NEAR(LinearS(kRoofline, Kernel::kLinear, 128, 256, 3 * 128, 20), 6 * 10 * kTileFlops * 256 / 1e9, 1e-9);
}

TEST(RooflineTest, WhatMovesLongerThanItComputes) {
  Roofline slow = kRoofline;
  slow.bytes_per_s = 1;
  EXPECT_NEAR(LinearS(slow, Kernel::kLinear, 10, 20, 30), 2.0 * (10 * 20 + 20 * 30 + 10 * 30), 1e-6);
  // Weight gradients are read and written in FP32.
  EXPECT_NEAR(LinearS(slow, Kernel::kLinearWeightGradient, 10, 20, 30), 2.0 * (10 * 20 + 10 * 30) + 8.0 * 20 * 30,
              1e-6);
}

TEST(RooflineTest, AttentionComputesHalfOfWhatIsCounted) {
  const KernelShape shape = {.heads = 1, .kv_heads = 1, .query_key_dim = 1, .value_dim = 1, .sequence = 4096};
  EXPECT_DOUBLE_EQ(RooflineS(kRoofline, Kernel::kAttention, shape, 4e9, 2), 1 + 2);
  EXPECT_DOUBLE_EQ(RooflineS(kRoofline, Kernel::kAttentionGradient, shape, 4e9, 2), 1 + 2.5 * 2e9 / 5e8);
  EXPECT_EQ(RooflineS(kRoofline, Kernel::kAttention, shape, 0, 2), 0);
}

// An H100's rates at 512 tokens over those at 4,096, with 128 heads: 0.302 of 0.618 forward, 0.146 of 0.419 backward.
TEST(RooflineTest, AttentionOfShortSequencesIsSlower) {
  const auto rate = [](Kernel kernel, int sequence, int window = 0) {
    const KernelShape shape = {
        .heads = 1, .kv_heads = 1, .query_key_dim = 1, .value_dim = 1, .sequence = sequence, .window = window};
    return 1 / (RooflineS(kRoofline, kernel, shape, 4e9, 2) - kRoofline.launch_s);
  };
  EXPECT_NEAR(rate(Kernel::kAttention, 512) / rate(Kernel::kAttention, 4096), 0.489, 0.01);
  EXPECT_NEAR(rate(Kernel::kAttentionGradient, 512) / rate(Kernel::kAttentionGradient, 4096), 0.348, 0.01);
  EXPECT_GT(rate(Kernel::kAttention, 2048), rate(Kernel::kAttention, 1024));
  // cuDNN 9.27 on A100, H200, GB200 and GB300: 1.09 and 1.12 on average. Longer sequences gain no more.
  EXPECT_NEAR(rate(Kernel::kAttention, 8192) / rate(Kernel::kAttention, 4096), 1.09, 0.02);
  EXPECT_NEAR(rate(Kernel::kAttentionGradient, 8192) / rate(Kernel::kAttentionGradient, 4096), 1.12, 0.04);
  EXPECT_EQ(rate(Kernel::kAttention, 32768), rate(Kernel::kAttention, 8192));
  EXPECT_EQ(rate(Kernel::kAttention, 8192, 512), rate(Kernel::kAttention, 512));
  EXPECT_EQ(rate(Kernel::kAttention, 8192, 128), rate(Kernel::kAttention, 512));
}

}  // namespace
}  // namespace moeplan
