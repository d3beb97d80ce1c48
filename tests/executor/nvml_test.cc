// What NVML tells of a card, from a library that stands in for it; and when a clock stands still.
#include "executor/cuda/nvml.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/cuda/settle_watch.h"

namespace moeplan::executor::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(NvmlTest, TellsTheFactsOfACard) {
  const auto nvml = Nvml::Open(MOEPLAN_FAKE_NVML);
  ASSERT_NE(nvml, nullptr);
  EXPECT_THAT(
      nvml->FactsOf("0000:00:00.0"),
      ElementsAre(Pair("clocksThrottledBy", "powerCap, temperature"), Pair("driver", "580.65.06"), Pair("ecc", "on"),
                  Pair("memoryClockHz", "3201000000"), Pair("memoryClockMaxHz", "3201000000"),
                  Pair("nvlinkPeers", "1 to 00000000:01:00.0, 1 to switches"), Pair("nvlinks", "2"),
                  Pair("pcieGeneration", "5"), Pair("pcieLanes", "16"), Pair("powerLimitW", "700"),
                  Pair("smClockHz", "1400000000"), Pair("smClockMaxHz", "1980000000")));
  EXPECT_EQ(nvml->SmClockHz("0000:00:00.0"), 1500e6);
}

TEST(NvmlTest, WhatALibraryDoesNotTellIsAbsent) {
  const auto nvml = Nvml::Open(MOEPLAN_FAKE_NVML_OF_OLD);
  ASSERT_NE(nvml, nullptr);
  EXPECT_THAT(nvml->FactsOf("0000:00:00.0"), ElementsAre(Pair("driver", "580.65.06")));
  EXPECT_EQ(nvml->SmClockHz("0000:00:00.0"), std::nullopt);
}

TEST(NvmlTest, OfAnotherCardNothingIsKnown) {
  const auto nvml = Nvml::Open(MOEPLAN_FAKE_NVML);
  ASSERT_NE(nvml, nullptr);
  EXPECT_THAT(nvml->FactsOf("0000:99:00.0"), ElementsAre(Pair("driver", "580.65.06")));
  EXPECT_EQ(nvml->SmClockHz("0000:99:00.0"), std::nullopt);
}

TEST(NvmlTest, IsEndedWithItsLastUser) {
  void* const library = dlopen(MOEPLAN_FAKE_NVML, RTLD_NOW);
  ASSERT_NE(library, nullptr);
  const auto users = reinterpret_cast<int (*)()>(dlsym(library, "FakeNvmlUsers"));
  const auto one = Nvml::Open(MOEPLAN_FAKE_NVML);
  Nvml::Open(MOEPLAN_FAKE_NVML);
  EXPECT_EQ(users(), 1);
  dlclose(library);
}

TEST(NvmlTest, IsNotOpenedWhereItIsNotOrIsSomethingElse) {
  EXPECT_EQ(Nvml::Open("libno-such-library.so.1"), nullptr);
  EXPECT_EQ(Nvml::Open("libm.so.6"), nullptr);
}

TEST(SettleWatchTest, ThreeReadingsWithinOnePerCentOfTheOneBeforeSettleIt) {
  SettleWatch watch;
  EXPECT_FALSE(watch.IsSettledAt(1300));
  EXPECT_FALSE(watch.IsSettledAt(1400));
  EXPECT_FALSE(watch.IsSettledAt(1413));  // 0.92 %.
  EXPECT_FALSE(watch.IsSettledAt(1400));
  EXPECT_TRUE(watch.IsSettledAt(1400));
}

TEST(SettleWatchTest, AJumpBeginsAnew) {
  SettleWatch watch;
  for (const double reading : {1400.0, 1400.0, 1400.0, 1415.0, 1415.0, 1415.0})
    EXPECT_FALSE(watch.IsSettledAt(reading));
  EXPECT_TRUE(watch.IsSettledAt(1415));
}

TEST(SettleWatchTest, ReadingsOfNothingNeverSettle) {
  SettleWatch watch;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(watch.IsSettledAt(0));
}

}  // namespace
}  // namespace moeplan::executor::cuda
