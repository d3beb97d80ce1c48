// Two micro-batches side by side: against the recurrence written out, and against what no order can beat.
#include "models/step/two_batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "models/timeline/timeline.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

// Seconds that are binary fractions, so that sums are exact.
HalfLayers AnyHalves(std::mt19937_64& random) {
  std::uniform_int_distribution<int> eighths(0, 64);
  const auto any = [&] { return eighths(random) / 8.0; };
  return {.attention_forward_s = any(),
          .attention_backward_s = any(),
          .attention_weights_s = any(),
          .experts_forward_s = any(),
          .experts_backward_s = any(),
          .experts_weights_s = any(),
          .dispatch_s = any(),
          .combine_s = any(),
          .combine_back_s = any(),
          .dispatch_back_s = any()};
}

double PlayedS(const HalfLayers& layer, int layers, bool delays) {
  const PricedTwoBatches built = BuildTwoBatches(layer, layers, delays);
  return Play(built.graph, built.prices).total_s;
}

// When each stream is free, and when what a batch has so far is done.
double WrittenOutS(const HalfLayers& layer, int layers, bool delays) {
  double compute = 0, exchange = 0, forward = 0, back = 0;
  const auto take = [](double& stream, double after, double time_s) {
    return stream = std::max(stream, after) + time_s;
  };
  for (int i = 0; i < layers; ++i) {
    const double combined = take(exchange, back, layer.combine_back_s);
    const double attended = take(compute, forward, layer.attention_forward_s);
    double returned = take(compute, combined, layer.experts_backward_s + (delays ? 0 : layer.experts_weights_s));
    const double dispatched = take(exchange, attended, layer.dispatch_s);
    if (delays) take(compute, returned, layer.experts_weights_s);
    const double sent_back = take(exchange, returned, layer.dispatch_back_s);
    const double computed = take(compute, dispatched, layer.experts_forward_s);
    forward = take(exchange, computed, layer.combine_s);
    back = take(compute, sent_back, layer.attention_backward_s + (delays ? 0 : layer.attention_weights_s));
    if (delays) take(compute, back, layer.attention_weights_s);
  }
  return std::max(compute, exchange);
}

TEST(TwoBatchesTest, StreamsTakeTurnsAsWrittenOut) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 300; ++i) {
    const HalfLayers layer = AnyHalves(random);
    for (const bool delays : {false, true}) {
      const int layers = 1 + i % 6;
      EXPECT_EQ(PlayedS(layer, layers, delays), WrittenOutS(layer, layers, delays)) << layers << " layers";
      EXPECT_EQ(TwoBatchesS(layer, layers, delays), WrittenOutS(layer, layers, delays));
    }
  }
}

TEST(TwoBatchesTest, NeitherStreamIsBeatenAndNothingTakesLongerThanOneAfterTheOther) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 100; ++i) {
    const HalfLayers layer = AnyHalves(random);
    const double exchanges_s = layer.dispatch_s + layer.combine_s + layer.combine_back_s + layer.dispatch_back_s;
    const double compute_s = layer.serial_s() - exchanges_s;
    for (const bool delays : {false, true}) {
      const double time_s = TwoBatchesS(layer, 5, delays);
      EXPECT_GE(time_s, 5 * std::max(compute_s, exchanges_s));
      EXPECT_LE(time_s, 5 * layer.serial_s());
    }
  }
}

// What is beside each exchange is longer than it, so only the first and the last stand alone.
TEST(TwoBatchesTest, ShortExchangesHideWhole) {
  const HalfLayers layer = {.attention_forward_s = 2,
                            .attention_backward_s = 4,
                            .experts_forward_s = 3,
                            .experts_backward_s = 6,
                            .dispatch_s = 1,
                            .combine_s = 1,
                            .combine_back_s = 1,
                            .dispatch_back_s = 1};
  EXPECT_EQ(PlayedS(layer, 1, false), 15);
  EXPECT_EQ(TwoBatchesS(layer, 7, false), 7 * 15);
  // Compute that is slowed by half while an exchange runs: of each layer 4 s take 6.
  HalfLayers slowed = layer;
  slowed.compute_slowdown = 1.5;
  EXPECT_NEAR(TwoBatchesS(slowed, 4, false), 4 * (15 + 4 * (1 - 1 / 1.5)), 1e-9);
}

// A pass begins with an exchange beside which weight gradients of the layer before would run.
TEST(TwoBatchesTest, SeveralPassesHideWhatEachOfThemDoes) {
  std::mt19937_64 random(TestSeed());
  double lost_s = 0;
  for (int i = 0; i < 100; ++i) {
    const HalfLayers layer = AnyHalves(random);
    const double alone_s = layer.serial_s() - 1, once_s = HiddenS(layer, alone_s, 6, 1, true);
    EXPECT_EQ(once_s, 6 * alone_s - TwoBatchesS(layer, 6, true));
    EXPECT_EQ(HiddenS(layer, alone_s, 6, 2, true), 2 * HiddenS(layer, alone_s, 3, 1, true));
    EXPECT_EQ(HiddenS(layer, alone_s, 7, 3, true),
              HiddenS(layer, alone_s, 3, 1, true) + 2 * HiddenS(layer, alone_s, 2, 1, true));
    EXPECT_EQ(HiddenS(layer, alone_s, 2, 5, true), 2 * HiddenS(layer, alone_s, 1, 1, true));
    lost_s += once_s - HiddenS(layer, alone_s, 6, 6, true);
  }
  EXPECT_GT(lost_s, 0);
}

TEST(TwoBatchesTest, ManyLayersTakeWhatTheirRateSays) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 50; ++i) {
    const HalfLayers layer = AnyHalves(random);
    const double played_s = PlayedS(layer, 40, i % 2 == 0);
    EXPECT_NEAR(TwoBatchesS(layer, 40, i % 2 == 0), played_s, 0.02 * played_s);
  }
}

}  // namespace
}  // namespace moeplan
