#include "models/cost/formula.h"

#include <gtest/gtest.h>

namespace moeplan {
namespace {

TEST(FormulaTest, SizesTimesAndRatesHaveThreeDigitsAndAUnit) {
  EXPECT_EQ(SizeText(300, "bytes"), "300 bytes");
  EXPECT_EQ(SizeText(1024, "bytes"), "1 KiB");
  EXPECT_EQ(SizeText(1536 * 1024, "bytes"), "1.5 MiB");
  EXPECT_EQ(SizeText(67108864, "bytes"), "64 MiB");
  EXPECT_EQ(SizeText(1023.9 * 1024, "bytes"), "1 MiB");
  EXPECT_EQ(SizeText(1.25e9, "flops"), "1.25 Gflop");
  EXPECT_EQ(TimeText(12.34e-6), "12.3 µs");
  EXPECT_EQ(TimeText(999.6e-6), "1 ms");
  EXPECT_EQ(TimeText(2.5), "2.5 s");
  EXPECT_EQ(TimeText(0), "0 s");
  EXPECT_EQ(RateText(23.1e9, "bytes"), "23.1 GB/s");
  EXPECT_EQ(RateText(312e12, "flops"), "312 Tflop/s");
}

TEST(FormulaTest, EachFormSaysHowItComesToATime) {
  EXPECT_EQ(FormulaText(AlphaBeta{12.3e-6, 1 / 23.1e9}, "bytes"), "time = 12.3 µs + bytes / 23.1 GB/s");
  EXPECT_EQ(FormulaText(AlphaBeta{0, 1e-12}, "flops"), "time = flops / 1 Tflop/s");
  EXPECT_EQ(FormulaText(AlphaBeta{1e-6, 0}, "bytes"), "time = 1 µs whatever the bytes");
  EXPECT_EQ(FormulaText(LogLog{{{1024, 1e-5}, {65536, 2e-5}, {67108864, 1e-3}}}, "bytes"),
            "log time linear in log bytes between 3 points from 1 KiB to 64 MiB; constant time below, constant rate "
            "above");
  EXPECT_EQ(FormulaText(Interpolated{{{1024, 1e-5}}}, "bytes"),
            "time linear in bytes between 1 point at 1 KiB; constant time below, the last slope above");
  EXPECT_EQ(FormulaText(Efficiency{2e11, {{1024, 0.1}, {1048576, 0.9}}}, "bytes"),
            "time = bytes·φ / (200 GB/s · r(bytes)), r linear in log2(bytes) between 2 points from 1 KiB to 1 MiB; "
            "constant time below, constant r above");
}

}  // namespace
}  // namespace moeplan
