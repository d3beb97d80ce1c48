// Fits of any samples that a stranger could send.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "models/fit/fit.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

// Any finite number above 0, also beside the ends of what is possible.
class AnyNumbers {
 public:
  explicit AnyNumbers(uint64_t seed) : random_(seed) {}

  int Int(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
  double LogUniform(double low, double high) {
    const double log = std::uniform_real_distribution(std::log(low), std::log(high))(random_);
    return std::clamp(std::exp(log), low, high);
  }

  // From 5e-324 to 1.8e308, mostly by its bits.
  double Wild() {
    constexpr double kSpecial[] = {5e-324, 1e-308, 2.3e-308, 1e-300, 1e-9, 1, 86400, 0x1p60, 1e300, 1e308};
    if (Int(0, 3) == 0) return kSpecial[Int(0, static_cast<int>(std::size(kSpecial)) - 1)];
    return std::bit_cast<double>(std::uniform_int_distribution<uint64_t>(1, 0x7fefffffffffffff)(random_));
  }

  // Some sizes far apart, some a rounding apart, some equal.
  double PossibleSize(double last) {
    if (last > 0 && Int(0, 3) == 0) return std::min(kLargestSize, std::nextafter(last, kLargestSize));
    if (last > 0 && Int(0, 3) == 0) return last;
    return LogUniform(kSmallestSize, kLargestSize);
  }

  double PossibleTime(double size) {
    const double shortest_s = std::max(kShortestRepeatS, size / kHighestRatePerS * (1 + 1e-12));
    const int kind = Int(0, 4);
    if (kind == 0) return shortest_s;
    if (kind == 1) return kLongestRepeatS;
    return LogUniform(shortest_s, kLongestRepeatS);
  }

 private:
  std::mt19937_64 random_;
};

SampleSet OneKey(std::vector<Sample> samples) {
  for (Sample& sample : samples) sample.key = KernelKey{.kernel = Kernel::kGate};
  return {.name = "any", .cluster = {.nodes = 1, .gpus_per_node = 4}, .samples = std::move(samples)};
}

void ExpectSound(const Profile& profile) {
  EXPECT_TRUE(ValidateProfile(profile).ok()) << ValidateProfile(profile).message();
  for (const KernelModel& entry : profile.kernels) {
    const FitQuality& fit = *entry.model.fit;
    for (const double number :
         {fit.relative_error_p50, fit.relative_error_p95, fit.alpha_low_s, fit.alpha_high_s, fit.beta_low_s_per_unit,
          fit.beta_high_s_per_unit, fit.interval_low_ratio, fit.interval_high_ratio}) {
      EXPECT_TRUE(std::isfinite(number) && number >= 0) << number;
    }
    EXPECT_LE(fit.alpha_low_s, fit.alpha_high_s);
    EXPECT_LE(fit.beta_low_s_per_unit, fit.beta_high_s_per_unit);
    EXPECT_GT(fit.interval_low_ratio, 0);
  }
}

TEST(FitProfileTest, EveryNumberOfAFitOfPossibleSamplesIsFiniteAndNotNegative) {
  AnyNumbers any(TestSeed());
  for (int draw = 0; draw < 2000; ++draw) {
    std::vector<Sample> samples;
    double size = 0;
    for (int left = any.Int(1, 24); left > 0; --left) {
      size = any.PossibleSize(size);
      Sample sample = {.key = {}, .size = size, .times_s = {any.PossibleTime(size)}, .provenance = {}};
      for (int more = any.Int(0, 4); more > 0; --more) {
        sample.times_s.push_back(any.Int(0, 1) == 0 ? sample.times_s.front() : any.PossibleTime(size));
      }
      samples.push_back(std::move(sample));
    }
    const SampleSet set = OneKey(samples);
    const auto profile = FitProfile(set);
    ASSERT_TRUE(profile.ok()) << "draw " << draw << ": " << profile.status().message();
    ExpectSound(*profile);
    if (HasFailure()) FAIL() << "draw " << draw;
  }
}

TEST(FitProfileTest, EqualTimesAndSinglePointsAtTheEndsOfThePossibleFit) {
  for (const double size : {kSmallestSize, 1e6, kLargestSize}) {
    for (const double time_s : {std::max(kShortestRepeatS, size / 1e18 * (1 + 1e-12)), 1.5, kLongestRepeatS}) {
      for (const int repeats : {1, 2, 9}) {
        const std::vector<double> times_s(static_cast<size_t>(repeats), time_s);
        const auto alone = FitProfile(OneKey({{.key = {}, .size = size, .times_s = times_s, .provenance = {}}}));
        ASSERT_TRUE(alone.ok()) << alone.status().message();
        ExpectSound(*alone);
        std::vector<Sample> equal;
        for (double other = size / 8; other <= size; other *= 2) {
          if (other >= kSmallestSize) equal.push_back({.key = {}, .size = other, .times_s = times_s, .provenance = {}});
        }
        const auto together = FitProfile(OneKey(equal));
        ASSERT_TRUE(together.ok()) << together.status().message();
        ExpectSound(*together);
      }
    }
  }
}

TEST(FitProfileTest, WildSamplesAreRefusedAndFitOnceTheyAreDropped) {
  AnyNumbers any(TestSeed());
  for (int draw = 0; draw < 2000; ++draw) {
    std::vector<Sample> samples = {{.key = {}, .size = 4096, .times_s = {1e-3, 1.1e-3}, .provenance = {}}};
    for (int left = any.Int(1, 8); left > 0; --left) {
      samples.push_back({.key = {}, .size = any.Wild(), .times_s = {any.Wild(), any.Wild()}, .provenance = {}});
    }
    SampleSet set = OneKey(samples);
    const auto as_they_come = FitProfile(set);
    const int impossible = DropImpossible(set.samples);
    EXPECT_EQ(as_they_come.ok(), impossible == 0);
    const auto profile = FitProfile(set);
    ASSERT_TRUE(profile.ok()) << "draw " << draw << ": " << profile.status().message();
    ExpectSound(*profile);
    if (HasFailure()) FAIL() << "draw " << draw;
  }
}

}  // namespace
}  // namespace moeplan
