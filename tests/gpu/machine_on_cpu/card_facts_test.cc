#include "executor/cuda/card_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace moeplan::executor::cuda {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Pair;

double SecondsToSettle(double limit_s, const std::string& nvml_library) {
  const auto device = *MakeCudaDevice({});
  const auto begin = std::chrono::steady_clock::now();
  const Status status = SettleClocks(*device, limit_s, nvml_library);
  EXPECT_TRUE(status.ok()) << status.message();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(CardFactsTest, ComeFromTheRuntimeAndSayWhereNvmlIsMissing) {
  EXPECT_THAT(CardFacts(0, "libno-such-library.so.1"),
              ElementsAre(Pair("computeCapability", "9.0"), Pair("cudaDriver", "12.9"), Pair("cudaRuntime", "13.0"),
                          Pair("device", "card on the CPU"), Pair("l2Bytes", "1048576"),
                          Pair("memoryBytes", "1073741824"), Pair("multiprocessors", "2"), Pair("nvml", "not found"),
                          Pair("pciBus", "0000:00:00.0"), Pair("uuid", "GPU-01234567-89ab-cdef-0000-000000000000")));
}

TEST(CardFactsTest, ComeFromNvmlWhereItIs) {
  const auto facts = CardFacts(0, MOEPLAN_FAKE_NVML);
  EXPECT_THAT(facts, AllOf(Contains(Pair("driver", "580.65.06")), Contains(Pair("smClockMaxHz", "1980000000")),
                           Contains(Pair("device", "card on the CPU"))));
  EXPECT_FALSE(facts.contains("nvml"));
}

// The stand-in's clock goes up by 100 MHz with each reading until it stands at 1,980 MHz.
TEST(CardFactsTest, ClocksAreSettledWhenTheyStandStill) {
  const auto nvml = Nvml::Open(MOEPLAN_FAKE_NVML);  // Else the library would begin anew.
  ASSERT_NE(nvml, nullptr);
  EXPECT_LT(SecondsToSettle(/*limit_s=*/60, MOEPLAN_FAKE_NVML), 30);
  EXPECT_EQ(nvml->SmClockHz("0000:00:00.0"), 1980e6);
}

TEST(CardFactsTest, SettlingTakesNoLongerThanItsLimit) {
  // One more piece of work may end behind it.
  EXPECT_LT(SecondsToSettle(/*limit_s=*/0.01, "libno-such-library.so.1"), 5);
}

}  // namespace
}  // namespace moeplan::executor::cuda
