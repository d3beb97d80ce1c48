// Codecs against plain references in double precision, and against the bounds that models/workload/codec.h states.
#include "executor/codec/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "executor/codec/values.h"
#include "executor/host/elements.h"
#include "models/text.h"
#include "tests/executor/job_runner.h"
#include "tests/test_seed.h"

namespace moeplan::executor {
namespace {

using Row = std::vector<float>;
using Bytes = std::vector<std::byte>;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kLargestBf16 = 0x1.fep127F;

// ---- References: a format as the papers define it, rounded in double precision.

struct Format {
  int digits;             // Of the significand, the leading one included.
  int smallest_exponent;  // Of normal values.
  double largest;
  bool saturates;
};
constexpr Format kFp16 = {11, -14, 65504, false};
constexpr Format kBf16 = {8, -126, kLargestBf16, false};
constexpr Format kFp8 = {4, -6, 448, true};

// The nearest value of the format, ties to even: std::nearbyint in units of the last digit.
double Rounded(double value, const Format& format) {
  if (!std::isfinite(value))
    return format.saturates && !std::isnan(value) ? std::copysign(format.largest, value) : value;
  const int exponent = value == 0 ? format.smallest_exponent : std::max(std::ilogb(value), format.smallest_exponent);
  const double unit = std::ldexp(1.0, exponent - (format.digits - 1));
  const double rounded = std::nearbyint(value / unit) * unit;
  if (std::abs(rounded) <= format.largest) return rounded;
  return std::copysign(format.saturates ? format.largest : kInfinity, value);
}

// Everything around what a format can say: random bits, and each code's own value, its neighbours and midpoints.
Row ValuesToRound(std::mt19937_64& random, const std::function<float(int)>& value_of_code, int codes) {
  Row values = {0.0F, -0.0F, kInfinity, -kInfinity, kLargest, -kLargest, 0x1p-149F, 0x1p-126F};
  for (int i = 0; i < 200000; ++i) values.push_back(FloatOf(static_cast<uint32_t>(random())));
  for (int code = 0; code + 1 < codes; ++code) {
    const float here = value_of_code(code), next = value_of_code(code + 1);
    if (!std::isfinite(here) || !std::isfinite(next)) continue;
    const float middle = here + (next - here) / 2;
    for (const float value : {here, middle, std::nextafter(middle, here), std::nextafter(middle, next)})
      values.insert(values.end(), {value, -value});
  }
  return values;
}

void ExpectSameValue(double got, double expected, float of) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(got)) << of << " became " << got;
  } else {
    EXPECT_EQ(got, expected) << "from " << of;
    EXPECT_EQ(std::signbit(got), std::signbit(expected)) << "from " << of;
  }
}

TEST(CodecValuesTest, Fp16RoundsToTheNearestAndOverflowsToInfinity) {
  std::mt19937_64 random(TestSeed());
  const auto value_of = [](int code) { return FloatFromFp16(static_cast<uint16_t>(code)); };
  for (const float value : ValuesToRound(random, value_of, 0x7c00)) {
    ExpectSameValue(FloatFromFp16(Fp16FromFloat(value)), Rounded(value, kFp16), value);
  }
  EXPECT_EQ(Fp16FromFloat(65519.996F), 0x7bff);  // Just below the middle between 65504 and 65536.
  EXPECT_EQ(Fp16FromFloat(65520.0F), 0x7c00);
}

TEST(CodecValuesTest, Bf16RoundsToTheNearest) {
  std::mt19937_64 random(TestSeed());
  const auto value_of = [](int code) { return FloatFromBf16(static_cast<uint16_t>(code)); };
  for (const float value : ValuesToRound(random, value_of, 0x7f80)) {
    ExpectSameValue(FloatFromBf16(Bf16FromFloat(value)), Rounded(value, kBf16), value);
  }
}

TEST(CodecValuesTest, Fp8RoundsToTheNearestAndSaturates) {
  std::mt19937_64 random(TestSeed());
  const auto value_of = [](int code) { return FloatFromFp8(static_cast<uint8_t>(code)); };
  for (const float value : ValuesToRound(random, value_of, 0x7f)) {
    ExpectSameValue(FloatFromFp8(Fp8FromFloat(value)), Rounded(value, kFp8), value);
  }
}

TEST(CodecValuesTest, Int8RoundsToTheNearestAndSaturates) {
  for (int half = -400; half <= 400; ++half) {
    for (const float value : {half / 2.0F, std::nextafter(half / 2.0F, -1e9F), std::nextafter(half / 2.0F, 1e9F)}) {
      EXPECT_EQ(Int8FromFloat(value), std::clamp(std::nearbyint(value), -127.0F, 127.0F)) << value;
    }
  }
  EXPECT_EQ(Int8FromFloat(kInfinity), 127);
  EXPECT_EQ(Int8FromFloat(-kLargest), -127);
}

// sign, `exponent_bits` of exponent, the rest mantissa, as IEEE reads them but for the top exponent.
double FiniteValueOf(int code, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int mantissa = code & ((1 << mantissa_bits) - 1);
  const int exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return (code >> (exponent_bits + mantissa_bits)) != 0 ? -magnitude : magnitude;
}

TEST(CodecValuesTest, Each256Fp8CodesHaveTheirValueAndComeBack) {
  for (int code = 0; code < 256; ++code) {
    const float value = FloatFromFp8(static_cast<uint8_t>(code));
    ExpectSameValue(value, (code & 0x7f) == 0x7f ? kNan : FiniteValueOf(code, 4, 3), code);
    EXPECT_EQ(Fp8FromFloat(value), code);
  }
}

TEST(CodecValuesTest, Each65536Fp16CodesHaveTheirValueAndComeBack) {
  for (int code = 0; code < 65536; ++code) {
    const float value = FloatFromFp16(static_cast<uint16_t>(code));
    if ((code & 0x7c00) != 0x7c00) {
      ASSERT_EQ(value, FiniteValueOf(code, 5, 10)) << code;
      ASSERT_EQ(Fp16FromFloat(value), code);
    } else if ((code & 0x3ff) == 0) {
      ASSERT_EQ(value, code == 0x7c00 ? kInfinity : -kInfinity);
      ASSERT_EQ(Fp16FromFloat(value), code);
    } else {
      ASSERT_TRUE(std::isnan(value)) << code;
      ASSERT_EQ(Fp16FromFloat(value), (code & 0x8000) | 0x7e00);
    }
  }
}

// ---- Rows.

class CodecRowsTest : public ::testing::TestWithParam<std::tuple<Codec, ElementType>> {
 protected:
  void SetUp() override {
    const Status there = CheckCodec(codec());
    if (!there.ok()) GTEST_SKIP() << there.message();
  }

  Codec codec() const { return std::get<0>(GetParam()); }
  ElementType type() const { return std::get<1>(GetParam()); }
  int element_bytes() const { return static_cast<int>(BytesOf(type())); }

  // The row as the type holds it.
  Row Held(Row row) const {
    if (type() == ElementType::kBfloat16) {
      for (float& value : row) value = FloatFromBf16(Bf16FromFloat(value));
    }
    return row;
  }

  Bytes EncodedRows(const Row& values, int columns) const {
    const ElementRowsShape shape = ShapeOf(values, columns);
    Bytes elements(values.size() * BytesOf(type())), encoded(shape.rows * EncodedRowBytes(codec(), shape));
    Store(values.data(), type(), values.size(), elements.data());
    EXPECT_TRUE(Encode(codec(), shape, elements.data(), encoded.data()).ok());
    return encoded;
  }

  Row DecodedRows(const Bytes& encoded, int64_t rows, int columns) const {
    Bytes elements(rows * columns * BytesOf(type()));
    EXPECT_TRUE(Decode(codec(), {type(), rows, columns}, encoded.data(), elements.data()).ok());
    Row values(rows * columns);
    Load(elements.data(), type(), values.size(), values.data());
    return values;
  }

  Row ThereAndBack(const Row& row) const {
    const int columns = static_cast<int>(row.size());
    return DecodedRows(EncodedRows(row, columns), 1, columns);
  }

  // The largest error of `row`, already held by the type, as a part of what the bound allows.
  double ErrorOfBound(const Row& row) const {
    const CodecErrorBound bound = ErrorBoundOf(codec(), element_bytes());
    const Row decoded = ThereAndBack(row);
    double worst = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      const double allowed = bound.relative * Reference(bound, row, i) + bound.absolute;
      const double error = std::abs(double{decoded[i]} - row[i]);
      const double part = allowed > 0 ? error / allowed : (error > 0 ? kInfinity : 0);
      if (!(part <= worst)) worst = part;  // A NaN must not be overlooked.
    }
    return worst;
  }

 private:
  ElementRowsShape ShapeOf(const Row& values, int columns) const {
    return {type(), static_cast<int64_t>(values.size()) / columns, columns};
  }

  static double Reference(const CodecErrorBound& bound, const Row& row, size_t i) {
    if (bound.scope == CodecErrorBound::Scope::kValue) return std::abs(row[i]);
    const bool is_row = bound.scope == CodecErrorBound::Scope::kRow;
    const size_t first = is_row ? 0 : i / bound.block * bound.block;
    const size_t end = is_row ? row.size() : std::min(row.size(), first + bound.block);
    double largest = 0;
    for (size_t j = first; j < end; ++j) largest = std::max(largest, std::abs(double{row[j]}));
    return largest;
  }
};

// Rows of one scale, of mixed scales, with one huge value, of subnormals, of few distinct values, with zeros.
Row RandomRow(std::mt19937_64& random, double largest) {
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution(low, high)(random); };
  const double scale = std::min(largest / 2, std::pow(10.0, uniform(-30, 30)));
  const int kind = static_cast<int>(random() % 6);
  Row row(1 + random() % (random() % 8 == 0 ? 300 : 70));
  for (float& value : row) {
    double drawn = uniform(-1, 1) * scale;
    if (kind == 1) drawn *= std::pow(10.0, uniform(-12, 0));
    if (kind == 2) drawn *= 1e-4;
    if (kind == 3) drawn = uniform(-1, 1) * 1e-38;
    if (kind == 4) drawn = (static_cast<int>(random() % 3) - 1) * scale;
    if (kind == 5 && random() % 2 == 0) drawn = random() % 2 == 0 ? 0.0 : -0.0;
    value = static_cast<float>(drawn);
  }
  if (kind == 2) row[random() % row.size()] = static_cast<float>(scale);
  return row;
}

TEST_P(CodecRowsTest, ErrorsOfRandomRowsStayWithinTheBound) {
  std::mt19937_64 random(TestSeed());
  const double largest = codec() == Codec::kFp16 ? 65504 : 2e38;
  for (int i = 0; i < 20000 && !HasFailure(); ++i) {
    const Row row = Held(RandomRow(random, largest));
    EXPECT_LE(ErrorOfBound(row), 1) << ::testing::PrintToString(row);
  }
}

TEST_P(CodecRowsTest, ErrorsOfHardRowsStayWithinTheBound) {
  const bool bf16 = type() == ElementType::kBfloat16;
  const float largest = codec() == Codec::kFp16           ? (bf16 ? 65280.0F : 65504.0F)
                        : bf16 || codec() == Codec::kBf16 ? kLargestBf16
                                                          : kLargest;
  const std::vector<Row> rows = {
      {0, 0, 0, 0, 0},
      {-0.0F, 0, -0.0F},
      {largest, -largest, largest, -largest},
      {largest, largest, 1, 0x1p-149F},
      {-largest, -largest, -largest, largest, 3},
      {0x1p-149F, -0x1p-149F},
      {0x1p-126F, -0x1p-127F, 0x1.8p-130F},
      {447 * 0x1p-126F, 17 * 0x1p-126F, 0x1p-126F},
      {0x1p-96F, -0x1.8p-97F, 0x1p-97F, 0},
      {0x1p-14F, 0x1.004p-15F, 0x1.8p-24F, 0x1p-25F, 0x1.8p-25F},
      {1, 1, 1, 1},
      {1, -1, 1, -1},
      {-1, 1, 1, -1},
      {65280, 65279, -65278, 1},
      {464, 448, 432, 31.9F, 240.1F},
      {127, 126.5F, 0.5F, 1.5F, -126.5F},
  };
  for (const Row& row : rows) EXPECT_LE(ErrorOfBound(Held(row)), 1) << ::testing::PrintToString(row);
}

// Climbs from random blocks towards larger errors. ZFP's bound is worst there: see how near one comes.
TEST_P(CodecRowsTest, ErrorsOfRowsThatAreSearchedForStayWithinTheBound) {
  std::mt19937_64 random(TestSeed());
  const auto uniform = [&] { return std::uniform_real_distribution(-1.0F, 1.0F)(random); };
  double worst = 0;
  for (int start = 0; start < 300; ++start) {
    Row row(kZfpBlock);
    for (float& value : row) value = uniform();
    row = Held(row);
    double reached = ErrorOfBound(row);
    for (int step = 0; step < 400; ++step) {
      Row next = row;
      next[random() % row.size()] += uniform() * std::pow(10.0F, 3 * uniform() - 3);
      next = Held(next);
      if (const double error = ErrorOfBound(next); error >= reached) reached = error, row = next;
    }
    worst = std::max(worst, reached);
    ASSERT_LE(reached, 1) << ::testing::PrintToString(row);
  }
  if (IsLossy(codec(), element_bytes()) && ErrorBoundOf(codec(), element_bytes()).relative > 0) {
    EXPECT_GT(worst, 0.4) << "the bound says more than is so";
  }
  RecordProperty("largest error / bound", std::to_string(worst));
}

TEST_P(CodecRowsTest, LargerValuesOfARowStayLarger) {
  if (codec() == Codec::kZfp) return;  // It mixes the values of a block.
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 2000 && !HasFailure(); ++i) {
    Row row = Held(RandomRow(random, 2e38));
    row.resize(std::min<size_t>(row.size(), kFp8Block));  // They share a scale.
    std::ranges::sort(row);
    EXPECT_TRUE(std::ranges::is_sorted(ThereAndBack(row))) << ::testing::PrintToString(row);
  }
}

TEST_P(CodecRowsTest, RowsDependOnNothingButThemselves) {
  std::mt19937_64 random(TestSeed());
  for (int number = 1; number <= 36; ++number) {
    const int columns = number <= 33 ? number : kFp8Block - 35 + number;
    const int rows = 1 + static_cast<int>(random() % 5);
    Row values;
    for (int i = 0; i < rows * columns; ++i) {
      values.push_back(std::uniform_real_distribution(-3.0F, 3.0F)(random) * (random() % 7 == 0 ? 0 : 1));
    }
    values = Held(values);
    const Bytes all = EncodedRows(values, columns);
    const size_t row_bytes = all.size() / rows;
    const Row decoded = DecodedRows(all, rows, columns);
    for (int row = 0; row < rows; ++row) {
      const Row alone(values.begin() + row * columns, values.begin() + (row + 1) * columns);
      const Bytes part(all.begin() + row * row_bytes, all.begin() + (row + 1) * row_bytes);
      EXPECT_EQ(EncodedRows(alone, columns), part) << "row " << row << " of " << columns << " columns";
      EXPECT_EQ(DecodedRows(part, 1, columns),
                Row(decoded.begin() + row * columns, decoded.begin() + (row + 1) * columns));
    }
  }
}

TEST_P(CodecRowsTest, WhatIsNotFiniteIsNeverTakenForAValue) {
  for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
    Row row(300, 1.5F);
    const size_t place = 149;
    row[place] = bad;
    const Row decoded = ThereAndBack(row);
    const auto [scope, relative, absolute, block] = ErrorBoundOf(codec(), element_bytes());
    for (size_t i = 0; i < row.size(); ++i) {
      const bool shares = scope == CodecErrorBound::Scope::kRow ||
                          (scope == CodecErrorBound::Scope::kBlock && i / block == place / block);
      const bool is_it = i == place && scope == CodecErrorBound::Scope::kValue;
      if (shares) {
        EXPECT_TRUE(std::isnan(decoded[i])) << i << " is " << decoded[i];
      } else if (is_it) {
        ExpectSameValue(decoded[i], bad, bad);
      } else {
        EXPECT_NEAR(decoded[i], 1.5, 0.05) << i;
      }
    }
  }
}

TEST_P(CodecRowsTest, NoRowsAndRowsOfOneValueAreRowsToo) {
  EXPECT_TRUE(Encode(codec(), {type(), 0, 8}, nullptr, nullptr).ok());
  EXPECT_TRUE(Decode(codec(), {type(), 0, 8}, nullptr, nullptr).ok());
  EXPECT_NEAR(ThereAndBack({2.0F})[0], 2.0, 0.05);
}

// libzfp 1.0.0 makes 8e-31 of {1.5, -1.1, 0.3, 0} · 2^-102 where there was 0.
TEST_P(CodecRowsTest, ZfpBlocksTooSmallForItsLibraryAreZeros) {
  if (codec() != Codec::kZfp) return;
  const Row decoded = ThereAndBack(Held({1.5F * 0x1p-102F, -1.1F * 0x1p-102F, 0x1p-120F, 0, 1, 1, 1, 1}));
  EXPECT_THAT(std::vector(decoded.begin(), decoded.begin() + kZfpBlock), Each(0.0F));
  EXPECT_NEAR(decoded[4], 1, 0.05);
}

std::string NameOfCase(const ::testing::TestParamInfo<std::tuple<Codec, ElementType>>& test) {
  constexpr const char* kNames[] = {"None", "Fp16", "Bf16", "Fp8", "Int8", "Zfp", "Fp8Blockwise"};
  const auto& [codec, type] = test.param;
  return StrCat(kNames[static_cast<size_t>(codec)], type == ElementType::kFloat32 ? "OfFloat32" : "OfBfloat16");
}

INSTANTIATE_TEST_SUITE_P(Codecs, CodecRowsTest,
                         ::testing::Combine(::testing::Values(Codec::kNone, Codec::kFp16, Codec::kBf16, Codec::kFp8,
                                                              Codec::kInt8, Codec::kZfp, Codec::kFp8Blockwise),
                                            ::testing::Values(ElementType::kFloat32, ElementType::kBfloat16)),
                         NameOfCase);

TEST(CodecTest, OfBuildsWithoutALibraryItsCodecSaysSo) {
  const Status zfp = CheckCodec(Codec::kZfp);
  for (const Codec codec :
       {Codec::kNone, Codec::kFp16, Codec::kBf16, Codec::kFp8, Codec::kInt8, Codec::kFp8Blockwise}) {
    EXPECT_TRUE(CheckCodec(codec).ok());
  }
  if (zfp.ok()) return;
  EXPECT_EQ(zfp.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(zfp.message(), HasSubstr("libzfp-dev"));
}

TEST(CodecTest, RowsHaveTheBytesThatTheCodecSays) {
  // 5 values: NONE as they are, 2 bytes each, a scale and 8 bytes, 2 blocks of 4 bytes.
  EXPECT_EQ(EncodedRowBytes(Codec::kNone, 5, 4), 20);
  EXPECT_EQ(EncodedRowBytes(Codec::kNone, 5, 2), 10);
  EXPECT_EQ(EncodedRowBytes(Codec::kFp16, 5, 4), 10);
  EXPECT_EQ(EncodedRowBytes(Codec::kBf16, 5, 4), 10);
  EXPECT_EQ(EncodedRowBytes(Codec::kFp8, 5, 2), 12);
  EXPECT_EQ(EncodedRowBytes(Codec::kInt8, 4, 2), 8);
  EXPECT_EQ(EncodedRowBytes(Codec::kZfp, 5, 4), 8);
  // A scale for each begun block of 128 values; of a row of DeepSeek-V3's 7168, 56.
  EXPECT_EQ(EncodedRowBytes(Codec::kFp8Blockwise, 5, 2), 12);
  EXPECT_EQ(EncodedRowBytes(Codec::kFp8Blockwise, 128, 2), 132);
  EXPECT_EQ(EncodedRowBytes(Codec::kFp8Blockwise, 129, 2), 8 + 132);
  EXPECT_EQ(EncodedRowBytes(Codec::kFp8Blockwise, 7168, 2), 4 * 56 + 7168);
}

// Beside a value 1e5 times as large, FP8 keeps hardly a digit of the others of its row.
TEST(CodecTest, ALargeValueCostsItsBlockAlone) {
  const ElementRowsShape shape = {.rows = 1, .columns = 3 * kFp8Block};
  Row row(shape.columns, 1.0F);
  row[kFp8Block + 7] = 1e5F;
  const auto there_and_back = [&](Codec codec) {
    Bytes code(EncodedRowBytes(codec, shape));
    Row decoded(row.size());
    EXPECT_TRUE(Encode(codec, shape, reinterpret_cast<const std::byte*>(row.data()), code.data()).ok());
    EXPECT_TRUE(Decode(codec, shape, code.data(), reinterpret_cast<std::byte*>(decoded.data())).ok());
    return decoded;
  };
  const Row by_row = there_and_back(Codec::kFp8), by_block = there_and_back(Codec::kFp8Blockwise);
  for (const int column : {0, kFp8Block - 1, 2 * kFp8Block, 3 * kFp8Block - 1}) {
    EXPECT_GT(std::abs(by_row[column] - 1), 0.1) << column;
    EXPECT_NEAR(by_block[column], 1, 1e-6) << column;
  }
  EXPECT_GT(std::abs(by_block[kFp8Block] - 1), 0.1);
}

TEST(CodecTest, OnlyBf16OfBf16LosesNothing) {
  EXPECT_EQ(CodecOnWire(Codec::kBf16, 2), Codec::kNone);
  EXPECT_EQ(CodecOnWire(Codec::kBf16, 4), Codec::kBf16);
  EXPECT_FALSE(IsLossy(Codec::kNone, 4));
  EXPECT_FALSE(IsLossy(Codec::kBf16, 2));
  EXPECT_TRUE(IsLossy(Codec::kBf16, 4));
  EXPECT_TRUE(IsLossy(Codec::kFp16, 2));
}

}  // namespace
}  // namespace moeplan::executor
