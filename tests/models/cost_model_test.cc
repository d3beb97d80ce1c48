#include "models/cost/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "models/cost/profile.h"

namespace moeplan {
namespace {

using ::testing::HasSubstr;

constexpr double kAnyBusFactor = 0.5;  // Matters to `efficiency` alone.

TEST(LogLogTest, IsAPowerLawBetweenPoints) {
  // From (100, 2 s) to (10 000, 8 s) the size grows 100 times and the time 4 times. At 1 000, half the way in log size,
  // the time is 2·sqrt(4) = 4 s.
  const LogLog curve = {{{100, 2}, {10'000, 8}}};
  EXPECT_NEAR(TimeS(curve, 1'000, kAnyBusFactor), 4, 1e-12);
  EXPECT_NEAR(TimeS(curve, 100, kAnyBusFactor), 2, 1e-12);
  EXPECT_NEAR(TimeS(curve, 10'000, kAnyBusFactor), 8, 1e-12);
}

TEST(LogLogTest, KeepsTheTimeBelowAndTheBandwidthAbove) {
  // Below 100: 2 s. Above 10 000: 8 s for 10 000 is 1 250 a second, so 30 000 take 24 s.
  const LogLog curve = {{{100, 2}, {10'000, 8}}};
  EXPECT_NEAR(TimeS(curve, 1, kAnyBusFactor), 2, 1e-12);
  EXPECT_NEAR(TimeS(curve, 0, kAnyBusFactor), 2, 1e-12);
  EXPECT_NEAR(TimeS(curve, 30'000, kAnyBusFactor), 24, 1e-12);
}

TEST(LogLogTest, OnePointIsEnough) {
  const LogLog curve = {{{100, 2}}};
  EXPECT_NEAR(TimeS(curve, 50, kAnyBusFactor), 2, 1e-12);
  EXPECT_NEAR(TimeS(curve, 300, kAnyBusFactor), 6, 1e-12);
}

TEST(InterpolatedTest, IsLinearBetweenPoints) {
  // A quarter of the way from (100, 2 s) to (500, 10 s): 2 + 8/4 = 4 s.
  const Interpolated curve = {{{100, 2}, {500, 10}, {600, 13}}};
  EXPECT_NEAR(TimeS(curve, 200, kAnyBusFactor), 4, 1e-12);
}

TEST(InterpolatedTest, KeepsTheTimeBelowAndTheLastSlopeAbove) {
  // The last slope is 3 s for 100, so 1 000 take 13 + 4·3 = 25 s.
  const Interpolated curve = {{{100, 2}, {500, 10}, {600, 13}}};
  EXPECT_NEAR(TimeS(curve, 7, kAnyBusFactor), 2, 1e-12);
  EXPECT_NEAR(TimeS(curve, 1'000, kAnyBusFactor), 25, 1e-12);
}

TEST(EfficiencyTest, IsLinearInLog2OfTheSizeBetweenPoints) {
  // Peak 100 a second. r(64) = 0.2, r(1 024) = 0.6; 256 is half the way in log2, so r = 0.4. With φ = 7/8:
  // 256·(7/8) / (100·0.4) = 5.6 s.
  const Efficiency curve = {.peak_per_s = 100, .points = {{64, 0.2}, {1'024, 0.6}}};
  EXPECT_NEAR(TimeS(curve, 256, 7.0 / 8), 5.6, 1e-12);
}

TEST(EfficiencyTest, FallsWithTheSizeBelowAndIsConstantAbove) {
  const Efficiency curve = {.peak_per_s = 100, .points = {{64, 0.2}, {1'024, 0.6}}};
  // r(16) = 0.2·16/64 = 0.05: 16·0.5 / (100·0.05) = 1.6 s, the time of 64: 64·0.5 / (100·0.2) = 1.6 s.
  EXPECT_NEAR(TimeS(curve, 16, 0.5), 1.6, 1e-12);
  EXPECT_NEAR(TimeS(curve, 64, 0.5), 1.6, 1e-12);
  EXPECT_NEAR(TimeS(curve, 0, 0.5), 1.6, 1e-12);
  // 6 000·0.5 / (100·0.6) = 50 s.
  EXPECT_NEAR(TimeS(curve, 6'000, 0.5), 50, 1e-12);
}

TEST(AlphaBetaTest, IsALine) {
  // 3 + 0.5·10 = 8 s.
  EXPECT_NEAR(TimeS(AlphaBeta{3, 0.5}, 10, kAnyBusFactor), 8, 1e-12);
  EXPECT_NEAR(TimeS(AlphaBeta{3, 0.5}, 0, kAnyBusFactor), 3, 1e-12);
}

TEST(BusFactorTest, CountsWhatCrossesALink) {
  // (n - 1)/n of the buffer, twice for an all-reduce. n = 4: 0.75 and 1.5.
  EXPECT_DOUBLE_EQ(BusFactor(Collective::kAllToAll, 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor(Collective::kAllGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor(Collective::kReduceScatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor(Collective::kAllToAllAllGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor(Collective::kAllReduce, 4), 1.5);
}

TEST(CostModelTest, TheRangeIsThatOfTheCurvesPoints) {
  const CostModel model = MakeCostModel(LogLog{{{100, 2}, {500, 8}}});
  EXPECT_EQ(model.size_low, 100);
  EXPECT_EQ(model.size_high, 500);
  EXPECT_EQ(MakeCostModel(AlphaBeta{1, 1}).size_high, std::numeric_limits<double>::infinity());
}

TEST(CostModelTest, APriceCarriesTheIntervalAndSaysWhenItExtrapolates) {
  CostModel model = MakeCostModel(LogLog{{{100, 2}, {500, 8}}});
  model.fit = FitQuality{.interval_low_ratio = 0.9, .interval_high_ratio = 1.25};
  // 2 s × 0.9 = 1.8 s, 2 s × 1.25 = 2.5 s.
  const PricedTime price = Price(model, 100, kAnyBusFactor);
  EXPECT_NEAR(price.time_s, 2, 1e-12);
  EXPECT_NEAR(price.low_s, 1.8, 1e-12);
  EXPECT_NEAR(price.high_s, 2.5, 1e-12);
  EXPECT_FALSE(price.extrapolated);
  EXPECT_TRUE(Price(model, 99, kAnyBusFactor).extrapolated);
  EXPECT_TRUE(Price(model, 501, kAnyBusFactor).extrapolated);
  model.fit.reset();
  EXPECT_NEAR(Price(model, 100, kAnyBusFactor).high_s, 2, 1e-12);  // No fit known: no width.
}

TEST(ValidateCurveTest, AcceptsEachForm) {
  EXPECT_TRUE(ValidateCurve(LogLog{{{1, 1}, {2, 1}}}, "m").ok());
  EXPECT_TRUE(ValidateCurve(Interpolated{{{1, 2}, {2, 1}}}, "m").ok());  // Times may fall where protocols switch.
  EXPECT_TRUE(ValidateCurve(Efficiency{1, {{1, 0.5}}}, "m").ok());
  EXPECT_TRUE(ValidateCurve(AlphaBeta{0, 1}, "m").ok());
  EXPECT_TRUE(ValidateCurve(AlphaBeta{1, 0}, "m").ok());
}

TEST(ValidateCurveTest, NamesTheFormThePointAndWhatWasExpected) {
  EXPECT_EQ(ValidateCurve(LogLog{}, "m").message(), "m.logLog.points: found none, expected at least one");
  EXPECT_EQ(ValidateCurve(LogLog{{{1, 1}, {2, -3}}}, "m").message(),
            "m.logLog.points[1].timeS: found -3, expected a finite number above 0");
  EXPECT_EQ(ValidateCurve(Interpolated{{{2, 1}, {2, 1}}}, "m").message(),
            "m.interpolated.points[1]: found size 2, expected more than 2 (points rise in size)");
  EXPECT_THAT(ValidateCurve(Interpolated{{{0, 1}}}, "m").message(), HasSubstr("points[0]: found size 0"));
  EXPECT_THAT(ValidateCurve(Efficiency{0, {{1, 0.5}}}, "m").message(),
              HasSubstr("m.efficiency.peakBytesPerS: found 0"));
  EXPECT_THAT(ValidateCurve(Efficiency{1, {{1, 0}}}, "m").message(), HasSubstr("points[0].efficiency: found 0"));
  EXPECT_THAT(ValidateCurve(AlphaBeta{-1, 1}, "m").message(), HasSubstr("m.alphaBeta.alphaS: found -1"));
  EXPECT_THAT(ValidateCurve(AlphaBeta{1, std::nan("")}, "m").message(), HasSubstr("found nan"));
  EXPECT_THAT(ValidateCurve(AlphaBeta{0, 0}, "m").message(), HasSubstr("expected one of them above 0"));
  EXPECT_EQ(ValidateCurve(LogLog{}, "m").code(), StatusCode::kInvalidInput);
}

CostModel Constant(double time_s) { return MakeCostModel(AlphaBeta{.alpha_s = time_s}); }

CollectiveKey AllToAllOf(int size, int ranks_per_node) {
  return {.collective = Collective::kAllToAll, .group = {size, ranks_per_node}};
}

Profile OneNode() { return {.name = "p", .cluster = {.nodes = 1, .gpus_per_node = 8}}; }

TEST(ProfileTest, AModelAnswersForItsGroupAlone) {
  Profile profile = OneNode();
  profile.collectives = {{AllToAllOf(4, 4), Constant(4)}, {AllToAllOf(4, 2), Constant(2)}};
  ASSERT_NE(Find(profile, AllToAllOf(4, 2)), nullptr);
  EXPECT_EQ(*Find(profile, AllToAllOf(4, 2)), Constant(2));
  EXPECT_EQ(*Find(profile, AllToAllOf(4, 4)), Constant(4));
  EXPECT_EQ(Find(profile, AllToAllOf(2, 2)), nullptr);
  CollectiveKey gather = AllToAllOf(4, 4);
  gather.collective = Collective::kAllGather;
  EXPECT_EQ(Find(profile, gather), nullptr);
}

TEST(ProfileTest, AnAbsentContendedEntryFallsBackToNoContention) {
  Profile profile = OneNode();
  CollectiveKey with_copy = AllToAllOf(2, 2);
  with_copy.contention = Contention::kWithCopy;
  CollectiveKey with_gemm = AllToAllOf(2, 2);
  with_gemm.contention = Contention::kWithExpertGemm;
  profile.collectives = {{AllToAllOf(2, 2), Constant(1)}, {with_copy, Constant(3)}};
  EXPECT_EQ(*Find(profile, with_copy), Constant(3));
  EXPECT_EQ(*Find(profile, with_gemm), Constant(1));
  EXPECT_EQ(FindContended(profile, with_gemm), nullptr);
  EXPECT_EQ(*FindContended(profile, with_copy), Constant(3));
}

TEST(ProfileTest, TheMostSpecificMatchWins) {
  Profile profile = OneNode();
  profile.kernels = {
      {{.kernel = Kernel::kExpertGemm}, Constant(1)},
      {{.kernel = Kernel::kExpertGemm, .bytes_per_element = 2}, Constant(2)},
      {{.kernel = Kernel::kExpertGemm, .bytes_per_element = 2, .model_dim = 512}, Constant(3)},
  };
  EXPECT_EQ(*Find(profile, KernelKey{.kernel = Kernel::kExpertGemm, .bytes_per_element = 2, .model_dim = 512}),
            Constant(3));
  EXPECT_EQ(*Find(profile, KernelKey{.kernel = Kernel::kExpertGemm, .bytes_per_element = 2, .model_dim = 64}),
            Constant(2));
  EXPECT_EQ(*Find(profile, KernelKey{.kernel = Kernel::kExpertGemm, .bytes_per_element = 4}), Constant(1));
  EXPECT_EQ(Find(profile, KernelKey{.kernel = Kernel::kGate}), nullptr);
}

TEST(ProfileTest, AnExactContentionWinsOverAMoreSpecificModelWithout) {
  Profile profile = OneNode();
  const KernelKey contended = {.kernel = Kernel::kExpertGemm, .contention = Contention::kWithAllToAll};
  profile.kernels = {{{.kernel = Kernel::kExpertGemm, .bytes_per_element = 2}, Constant(1)}, {contended, Constant(2)}};
  KernelKey wanted = contended;
  wanted.bytes_per_element = 2;
  EXPECT_EQ(*Find(profile, wanted), Constant(2));
}

TEST(ProfileTest, ACollectiveOfLimitedCtasIsAnsweredForByItsLimitAlone) {
  const auto limited_to = [](int ctas, Contention contention = Contention::kNone) {
    CollectiveKey key = AllToAllOf(2, 2);
    key.ctas = ctas;
    key.contention = contention;
    return key;
  };
  Profile profile = OneNode();
  profile.collectives = {{limited_to(0), Constant(1)}, {limited_to(8), Constant(2)}};
  EXPECT_EQ(*Find(profile, limited_to(0)), Constant(1));
  EXPECT_EQ(*Find(profile, limited_to(8)), Constant(2));
  EXPECT_EQ(*Find(profile, limited_to(8, Contention::kWithExpertGemm)), Constant(2));
  EXPECT_EQ(Find(profile, limited_to(4)), nullptr);
  EXPECT_EQ(Find(profile, limited_to(16)), nullptr);
}

TEST(ProfileTest, AKernelBesideLimitedCommunicationFallsBackToUnlimitedThenToNone) {
  const auto beside = [](Contention contention, int ctas) {
    return KernelKey{.kernel = Kernel::kExpertGemm, .contention = contention, .ctas = ctas};
  };
  Profile profile = OneNode();
  profile.kernels = {{beside(Contention::kNone, 0), Constant(1)},
                     {beside(Contention::kWithAllToAll, 0), Constant(3)},
                     {beside(Contention::kWithAllToAll, 8), Constant(2)}};
  EXPECT_EQ(*Find(profile, beside(Contention::kWithAllToAll, 8)), Constant(2));
  EXPECT_EQ(*Find(profile, beside(Contention::kWithAllToAll, 4)), Constant(3));
  EXPECT_EQ(*Find(profile, beside(Contention::kWithAllGather, 8)), Constant(1));
  EXPECT_EQ(*FindContended(profile, beside(Contention::kWithAllToAll, 8)), Constant(2));
  EXPECT_EQ(FindContended(profile, beside(Contention::kWithAllToAll, 4)), nullptr);
}

TEST(ValidateProfileTest, CtasAreOfCommunicationAlone) {
  Profile profile = OneNode();
  const auto kernel_error = [&](Contention contention, int ctas) {
    profile.kernels = {{{.kernel = Kernel::kGate, .contention = contention, .ctas = ctas}, Constant(1)}};
    return ValidateProfile(profile).message();
  };
  EXPECT_EQ(kernel_error(Contention::kWithAllToAll, 8), "");
  EXPECT_EQ(kernel_error(Contention::kWithAllGather, kMostCtas), "");
  for (const Contention contention : {Contention::kNone, Contention::kWithCopy, Contention::kWithExpertGemm}) {
    EXPECT_EQ(kernel_error(contention, 8), "kernels[0].ctas: found 8 with contention " + std::string(Name(contention)) +
                                               ", expected 0, or WITH_ALL_TO_ALL or WITH_ALL_GATHER, which it limits");
  }
  EXPECT_EQ(kernel_error(Contention::kWithAllToAll, -1), "kernels[0].ctas: found -1, expected 0 to 1024");
  profile.kernels.clear();
  CollectiveKey key = AllToAllOf(2, 2);
  key.ctas = kMostCtas + 1;
  profile.collectives = {{key, Constant(1)}};
  EXPECT_EQ(ValidateProfile(profile).message(), "collectives[0].ctas: found 1025, expected 0 to 1024");
}

TEST(ValidateProfileTest, AcceptsASoundProfile) {
  Profile profile = OneNode();
  profile.collectives = {{AllToAllOf(2, 2), Constant(1)}};
  profile.kernels = {{{.kernel = Kernel::kGate}, Constant(1)}};
  EXPECT_TRUE(ValidateProfile(profile).ok()) << ValidateProfile(profile).message();
}

TEST(ValidateProfileTest, NamesTheEntryThatIsWrong) {
  Profile profile = OneNode();
  profile.collectives = {{AllToAllOf(2, 2), Constant(1)}, {AllToAllOf(2, 2), Constant(2)}};
  EXPECT_EQ(ValidateProfile(profile).message(),
            "collectives[1]: found a second entry for ALL_TO_ALL groupSize 2 ranksPerNode 2, expected one");
  profile.collectives = {{AllToAllOf(2, 3), Constant(1)}};
  EXPECT_THAT(ValidateProfile(profile).message(), HasSubstr("collectives[0].ranksPerNode: found 3"));
  profile.collectives.clear();
  profile.kernels = {{{.kernel = Kernel::kGate}, MakeCostModel(AlphaBeta{})}};
  EXPECT_THAT(ValidateProfile(profile).message(), HasSubstr("kernels[0].alphaBeta"));
  profile.kernels = {{{.kernel = Kernel::kGate}, Constant(1)}};
  profile.kernels[0].model.summary = AlphaBeta{-1, 0};
  EXPECT_THAT(ValidateProfile(profile).message(), HasSubstr("kernels[0].alphaBeta.alphaS: found -1"));
}

TEST(ValidateProfileTest, GatherGroupAndShardsStandWithTheJointCollectiveAlone) {
  Profile profile = OneNode();
  CollectiveKey key = AllToAllOf(2, 2);
  key.shards = 2;
  profile.collectives = {{key, Constant(1)}};
  EXPECT_THAT(ValidateProfile(profile).message(), HasSubstr("expected them for ALL_TO_ALL_ALL_GATHER alone"));
  key.collective = Collective::kAllToAllAllGather;
  profile.collectives = {{key, Constant(1)}};
  EXPECT_THAT(ValidateProfile(profile).message(), HasSubstr("found gatherGroupSize 0 and shards 2"));
  key.gather_group_size = 2;
  profile.collectives = {{key, Constant(1)}};
  EXPECT_TRUE(ValidateProfile(profile).ok()) << ValidateProfile(profile).message();
}

}  // namespace
}  // namespace moeplan
