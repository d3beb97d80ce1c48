#include "models/cost/plausible.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace moeplan {
namespace {

using testing::HasSubstr;
using testing::Optional;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// On one node of 4 GPUs with a peak of 1e15 flops/s.
std::optional<std::string> Why(const Sample& sample) {
  return WhyImplausible(sample, {.nodes = 1, .gpus_per_node = 4, .peak_flops_per_s = 1e15});
}

Sample Gate(std::vector<double> times_s) {
  return {.key = KernelKey{.kernel = Kernel::kGate}, .size = 1024, .times_s = std::move(times_s)};
}

Sample OverLink(Collective collective, double time_s, const std::string& link_bytes_per_s) {
  return {.key = CollectiveKey{.collective = collective, .group = {.size = 4, .ranks_per_node = 4}},
          .size = 4e9,
          .times_s = {1, time_s},
          .provenance = {{kLinkBytesPerSKey, link_bytes_per_s}}};
}

TEST(PlausibleTest, SoundTimesPass) { EXPECT_EQ(Why(Gate({1.1e-9, 1, 86400})), std::nullopt); }

TEST(PlausibleTest, EveryTimeIsAFiniteNumberAboveZero) {
  for (const double time_s : {0.0, -0.0, -1e-6, kNaN, kInfinity, -kInfinity}) {
    EXPECT_THAT(Why(Gate({1e-3, time_s})), Optional(HasSubstr("timeS[1]: found "))) << time_s;
  }
  EXPECT_THAT(Why(Gate({})), Optional(HasSubstr("timeS: found no time")));
}

TEST(PlausibleTest, TheSizeIsAFiniteNumberAboveZero) {
  for (const double size : {0.0, -1.0, kNaN, kInfinity}) {
    Sample sample = Gate({1e-3});
    sample.size = size;
    EXPECT_THAT(Why(sample), Optional(HasSubstr("found size "))) << size;
  }
}

TEST(PlausibleTest, ARepeatLastsFromANanosecondToADay) {
  for (const double time_s : {1e-300, 5e-324, 0.99e-9, 86401.0, 1e300}) {
    EXPECT_THAT(Why(Gate({1e-3, time_s})), Optional(HasSubstr("expected 1e-09 to 86400 s"))) << time_s;
  }
  Sample tick = Gate({1e-9});
  tick.size = 1;
  EXPECT_EQ(Why(tick), std::nullopt);
}

TEST(PlausibleTest, ASizeIsFromOneToTwoToTheSixtieth) {
  Sample sample = Gate({1000});
  for (const double size : {5e-324, 0.5, 0x1.0001p60, 1e300}) {
    sample.size = size;
    EXPECT_THAT(Why(sample), Optional(HasSubstr("expected 1 to 1152921504606846976"))) << size;
  }
  for (const double size : {1.0, 0x1p60}) {
    sample.size = size;
    EXPECT_EQ(Why(sample), std::nullopt) << size;
  }
}

TEST(PlausibleTest, NoMachineIsFasterThanABillionBillionASecond) {
  // 1e12 bytes in a microsecond are 1e18 a second.
  Sample sample = Gate({1, 1e-6});
  sample.size = 1e12;
  EXPECT_EQ(Why(sample), std::nullopt);
  sample.size = 1.01e12;
  EXPECT_THAT(Why(sample), Optional(HasSubstr("timeS[1]: found 1e-06 s, which is 1.01e+18 per second")));
}

TEST(PlausibleTest, ImpossibleSamplesAreDroppedAndCounted) {
  std::vector<Sample> samples = {Gate({1e-3}), Gate({1e300}), Gate({1e-300}), Gate({2e-3})};
  EXPECT_EQ(DropImpossible(samples), 2);
  EXPECT_EQ(samples, (std::vector{Gate({1e-3}), Gate({2e-3})}));
}

TEST(PlausibleTest, NothingCrossesALinkFasterThanItsPeak) {
  // 4e9 bytes among 4: 3e9 leave each rank. At 100e9 bytes/s they take 30 ms; 5 % of slack allow 28.57 ms.
  EXPECT_EQ(Why(OverLink(Collective::kAllToAll, 30e-3, "100e9")), std::nullopt);
  EXPECT_EQ(Why(OverLink(Collective::kAllToAll, 28.6e-3, "100e9")), std::nullopt);
  EXPECT_THAT(Why(OverLink(Collective::kAllToAll, 28.5e-3, "100e9")),
              Optional(HasSubstr("timeS[1]: found 0.0285 s, which is 105263157894")));
  EXPECT_THAT(Why(OverLink(Collective::kAllToAll, 28.5e-3, "100e9")),
              Optional(HasSubstr("expected at most provenance.linkBytesPerS = 1e+11")));
}

TEST(PlausibleTest, ASwitchMayReduceForTheRanks) {
  // φ of an all-reduce among 4 is 1.5, yet 4e9 bytes out and in, 40 ms, are enough where the switch adds them up.
  EXPECT_EQ(Why(OverLink(Collective::kAllReduce, 40e-3, "100e9")), std::nullopt);
  EXPECT_NE(Why(OverLink(Collective::kAllReduce, 38e-3, "100e9")), std::nullopt);
}

TEST(PlausibleTest, LinksThatAreNotKnownAreNotAsked) {
  Sample sample = OverLink(Collective::kAllToAll, 5e-9, "100e9");
  sample.provenance.clear();
  EXPECT_EQ(Why(sample), std::nullopt);
}

TEST(PlausibleTest, APeakThatIsNoNumberIsNamed) {
  for (const char* peak : {"", "fast", "1e9 B/s", "0", "-1", "nan", "inf"}) {
    EXPECT_THAT(Why(OverLink(Collective::kAllToAll, 1, peak)),
                Optional(HasSubstr("provenance.linkBytesPerS: found '" + std::string(peak) + "'")));
  }
}

TEST(PlausibleTest, AttentionCountsItsMaskedHalfAndMayComeToTwiceThePeak) {
  const KernelShape shape = {.heads = 8, .kv_heads = 8, .query_key_dim = 64, .value_dim = 64, .sequence = 1024};
  const auto attention = [&](double time_s) {
    return Sample{.key = KernelKey{.kernel = Kernel::kAttention, .shape = shape}, .size = 1e12, .times_s = {time_s}};
  };
  EXPECT_EQ(Why(attention(1e12 / 1.9e15)), std::nullopt);
  EXPECT_THAT(Why(attention(1e12 / 2.5e15)), Optional(HasSubstr("cluster.peakFlopsPerS")));
}

TEST(PlausibleTest, NoProductIsFasterThanTheGpu) {
  // 1e12 flops at 1e15 flops/s take 1 ms.
  Sample sample = {.key = KernelKey{.kernel = Kernel::kExpertGemm}, .size = 1e12, .times_s = {1e-3}};
  EXPECT_EQ(Why(sample), std::nullopt);
  sample.times_s = {1e-3, 0.9e-3};
  EXPECT_THAT(Why(sample), Optional(HasSubstr("timeS[1]: found 9e-04 s")));
  EXPECT_EQ(WhyImplausible(sample, {.nodes = 1, .gpus_per_node = 4}), std::nullopt);  // The peak is not known.
  sample.key = KernelKey{.kernel = Kernel::kGate};                                    // Counts bytes.
  EXPECT_EQ(Why(sample), std::nullopt);
}

// ---- Links that the cluster knows.

constexpr Cluster kWired = {.nodes = 4, .gpus_per_node = 4, .node_link_bytes_per_s = 1e11, .network_bytes_per_s = 1e10};

std::optional<std::string> WhyOver(const GroupShape& group, double time_s, const Cluster& cluster = kWired) {
  const Sample sample = {
      .key = CollectiveKey{.collective = Collective::kAllToAll, .group = group}, .size = 4e9, .times_s = {1e3, time_s}};
  return WhyImplausible(sample, cluster);
}

TEST(PlausibleTest, NothingInsideANodeIsFasterThanItsLinks) {
  // 3e9 of 4e9 bytes leave each rank: at 1e11 bytes/s and with 5 % of slack in 28.57 ms.
  EXPECT_EQ(WhyOver({4, 4}, 28.6e-3), std::nullopt);
  EXPECT_THAT(WhyOver({4, 4}, 28.5e-3), Optional(HasSubstr("timeS[1]: found 0.0285 s, which is 105263157894")));
  EXPECT_THAT(WhyOver({4, 4}, 28.5e-3), Optional(HasSubstr("expected at most cluster.nodeLinkBytesPerS = 1e+11")));
}

TEST(PlausibleTest, NothingBetweenSingleRanksOfNodesIsFasterThanTheNetwork) {
  // 3e9 bytes less a burst of 2 MiB at 1e10 bytes/s, 5 % of slack: 285.5 ms.
  EXPECT_EQ(WhyOver({4, 1}, 285.6e-3), std::nullopt);
  EXPECT_THAT(WhyOver({4, 1}, 285.4e-3), Optional(HasSubstr("expected at most cluster.networkBytesPerS = 1e+10")));
}

TEST(PlausibleTest, GroupsThatUseBothLinksAndWiresThatAreNotKnownAreNotAsked) {
  EXPECT_EQ(WhyOver({8, 2}, 10e-3), std::nullopt);
  const Cluster unknown = {.nodes = 4, .gpus_per_node = 4};
  EXPECT_EQ(WhyOver({4, 4}, 10e-3, unknown), std::nullopt);
  EXPECT_EQ(WhyOver({4, 1}, 10e-3, unknown), std::nullopt);
  Sample sample = {.key = CollectiveKey{.collective = Collective::kAllToAllAllGather, .group = {4, 1}},
                   .size = 4e9,
                   .times_s = {10e-3}};
  EXPECT_EQ(WhyImplausible(sample, kWired), std::nullopt);
  sample.key = CollectiveKey{.collective = Collective::kAllToAll, .group = {4, 1}, .dispatcher = Dispatcher::kDeepEp};
  EXPECT_EQ(WhyImplausible(sample, kWired), std::nullopt);
}

// A token bucket of an emulated network is full after a pause: 150 µs of its rate, but a frame of 9000 bytes at least.
TEST(PlausibleTest, ABurstIsNoLie) {
  const auto why = [](double rate, double bytes, double time_s) {
    const Sample sample = {.key = CollectiveKey{.collective = Collective::kAllToAll, .group = {2, 1}},
                           .size = 2 * bytes,  // A rank sends half of it.
                           .times_s = {time_s}};
    return WhyImplausible(sample, {.nodes = 2, .gpus_per_node = 2, .network_bytes_per_s = rate});
  };
  EXPECT_EQ(why(2.5e7, 16384, 2e-5), std::nullopt);
  EXPECT_EQ(why(1e9, 1.5e5, 2e-5), std::nullopt);
  EXPECT_NE(why(2.5e7, 1 << 20, 2e-2), std::nullopt);  // 42 ms.
  EXPECT_NE(why(1e9, 1e6, 2e-5), std::nullopt);
}

TEST(PlausibleTest, RatesOfLinksHaveBounds) {
  for (const double rate : {0.5, 1e300}) {
    Cluster cluster = kWired;
    cluster.network_bytes_per_s = rate;
    EXPECT_THAT(ValidatePossible(cluster, "cluster").message(), HasSubstr("cluster.networkBytesPerS: found "));
    ForgetImpossible(cluster);
    EXPECT_EQ(cluster.network_bytes_per_s, 0);
    EXPECT_EQ(cluster.node_link_bytes_per_s, 1e11);
    cluster.node_link_bytes_per_s = rate;
    EXPECT_THAT(ValidatePossible(cluster, "cluster").message(), HasSubstr("cluster.nodeLinkBytesPerS: found "));
  }
  EXPECT_TRUE(ValidatePossible(kWired, "cluster").ok());
}

}  // namespace
}  // namespace moeplan
