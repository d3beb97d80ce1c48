#include "planner/service/samples/fit_memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace moeplan::service {
namespace {

const CostKey kGate = KernelKey{.kernel = Kernel::kGate};
const CostKey kCopy = KernelKey{.kernel = Kernel::kDeviceCopy};

TEST(FitMemoryTest, TheSameCurveIsFittedOnceAndAnswersTheSame) {
  FitMemory memory;
  const std::vector<SizedTimes> curve = {{1024, {1e-6, 1.1e-6}}, {2048, {2e-6}}, {8192, {5e-6}}};
  EXPECT_EQ(memory.Fit(kGate, curve), FitCurve(curve));
  EXPECT_EQ(memory.Fit(kGate, curve), FitCurve(curve));
  EXPECT_EQ(memory.fitted(), 1);
}

TEST(FitMemoryTest, AnyOtherCurveIsFittedAnew) {
  FitMemory memory;
  const std::vector<SizedTimes> curve = {{1024, {1e-6, 2e-6}}, {2048, {3e-6}}};
  memory.Fit(kGate, curve);
  memory.Fit(kCopy, curve);                                     // Another key,
  memory.Fit(kGate, {{1024, {1e-6, 2e-6}}, {2049, {3e-6}}});    // size,
  memory.Fit(kGate, {{1024, {1e-6, 2e-6}}, {2048, {3.1e-6}}});  // time,
  memory.Fit(kGate, {{1024, {1e-6}}, {2e-6, {2048, 3e-6}}});    // and the same numbers in other places.
  memory.Fit(kGate, {{1024, {1e-6}}, {2048, {2e-6}}, {2048, {3e-6}}});
  EXPECT_EQ(memory.fitted(), 6);
}

TEST(FitMemoryTest, WhatWasAskedForLongestAgoGoesFirst) {
  FitMemory memory(/*most_curves=*/2);
  const auto curve = [](double size) { return std::vector<SizedTimes>{{size, {1e-6}}}; };
  memory.Fit(kGate, curve(1024));
  memory.Fit(kGate, curve(2048));
  memory.Fit(kGate, curve(1024));
  memory.Fit(kGate, curve(4096));
  EXPECT_EQ(memory.fitted(), 3);
  memory.Fit(kGate, curve(1024));
  EXPECT_EQ(memory.fitted(), 3);
  memory.Fit(kGate, curve(2048));
  EXPECT_EQ(memory.fitted(), 4);
}

}  // namespace
}  // namespace moeplan::service
