#include "planner/service/handlers/outlier_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace moeplan::service {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

// A nanosecond a byte, at sizes of 1, 2, 4 and 8 KiB; that of `slow` ten times too slow.
KeySamples Samples(int slow, bool retired = false) {
  auto times = std::make_shared<std::vector<double>>();
  for (int i = 0; i < 4; ++i) times->push_back((1024 << i) * 1e-9 * (i == slow ? 10 : 1));
  KeySamples samples = {.parts = {{times, retired}}};
  for (int i = 0; i < 4; ++i)
    samples.times.push_back({.size = 1024.0 * (1 << i), .times_s = {&(*times)[i], 1}, .retired = retired});
  return samples;
}

TEST(OutlierMemoryTest, TheSameTimesAreScreenedOnceAndOthersForThemselves) {
  OutlierMemory memory;
  const KeySamples one = Samples(/*slow=*/1), other = Samples(/*slow=*/2);
  const auto of_one = memory.Of(one);
  EXPECT_THAT(*of_one, ElementsAre(IsEmpty(), ElementsAre(0), IsEmpty(), IsEmpty()));
  EXPECT_THAT(*memory.Of(other), ElementsAre(IsEmpty(), IsEmpty(), ElementsAre(0), IsEmpty()));
  EXPECT_EQ(memory.Of(one), of_one);
  // Those that later ones stand in place of count no more, though their times are the same.
  KeySamples retired = one;
  for (KeySamples::Times& sample : retired.times) sample.retired = true;
  for (KeySamples::Part& part : retired.parts) part.retired = true;
  EXPECT_THAT(*memory.Of(retired), Each(IsEmpty()));
  EXPECT_EQ(memory.Of(one), of_one);
}

TEST(OutlierMemoryTest, WhatWasNotAskedForOfLateIsForgotten) {
  OutlierMemory memory;
  const KeySamples often = Samples(/*slow=*/1), once = Samples(/*slow=*/1);
  const auto of_often = memory.Of(often);
  const std::weak_ptr<const OutlierMemory::Outliers> of_once = memory.Of(once);
  std::vector<KeySamples> others;
  for (int i = 0; i < 100; ++i) {
    others.push_back(Samples(/*slow=*/2));
    (void)memory.Of(others.back());
    EXPECT_EQ(memory.Of(often), of_often);
  }
  EXPECT_TRUE(of_once.expired());
}

TEST(OutlierMemoryTest, WhatIsTooMuchIsNotKept) {
  OutlierMemory memory;
  const auto times = std::make_shared<std::vector<double>>(3'000'000, 1e-6);
  const KeySamples much = {.times = {{.size = 1024, .times_s = *times}}, .parts = {{times, false}}};
  const std::weak_ptr<const OutlierMemory::Outliers> of_much = memory.Of(much);
  EXPECT_TRUE(of_much.expired());
}

}  // namespace
}  // namespace moeplan::service
