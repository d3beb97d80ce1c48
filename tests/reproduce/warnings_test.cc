#include "cli/warnings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moeplan::cli {
namespace {

using ::testing::ElementsAre;

TEST(WarningsTest, WhatIsSaidOfManyCostsIsOneLineAndComesFirst) {
  EXPECT_THAT(GroupedWarnings({"A: not known", "GATE: priced 0", "B groupSize 8: extrapolated × 0.8 to 1.3",
                               "C groupSize 16: extrapolated × 0.7 to 1.5"}),
              ElementsAre("B groupSize 8: extrapolated × 0.8 to 1.3 (and 1 more of that kind)", "A: not known",
                          "GATE: priced 0"));
}

TEST(WarningsTest, TenLinesAtMost) {
  std::vector<std::string> warnings;
  for (char c = 'a'; c < 'a' + 10; ++c) warnings.push_back(std::string("x: ") + c);
  EXPECT_EQ(GroupedWarnings(warnings).size(), 10u);
  warnings.push_back("x: z");
  const std::vector<std::string> lines = GroupedWarnings(warnings);
  ASSERT_EQ(lines.size(), 10u);
  EXPECT_EQ(lines.back(), "2 more kinds, which --json lists");
}

}  // namespace
}  // namespace moeplan::cli
