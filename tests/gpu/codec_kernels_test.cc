// Codes of rows, and what they become, against the host's codecs bit for bit; ZFP's against blocks that libzfp coded
// where the host has no libzfp.
#include "executor/cuda/codec_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "executor/codec/codec.h"
#include "executor/codec/zfp_block.h"
#include "tests/gpu/on_device.h"
#include "tests/test_seed.h"

namespace moeplan::executor::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Rows of one scale, of mixed scales, of random bits, of zeros; some with a value that is not finite.
std::vector<float> RandomRows(std::mt19937_64& random, int rows, int columns) {
  std::vector<float> values;
  for (int row = 0; row < rows; ++row) {
    const auto kind = random() % 5;
    const float scale = std::ldexp(1.0F, Between(random, -100, 120));
    for (int column = 0; column < columns; ++column) {
      float value = std::uniform_real_distribution(-1.0F, 1.0F)(random) * scale;
      if (kind == 1) value = std::ldexp(value, -Between(random, 0, 30));
      if (kind == 2) value = FloatOf(static_cast<uint32_t>(random()));
      if (kind == 3) value = random() % 2 == 0 ? 0.0F : -0.0F;
      values.push_back(value);
    }
    if (random() % 8 == 0) values[row * columns + random() % columns] = random() % 2 == 0 ? kNan : -kInfinity;
  }
  return values;
}

class CodecKernelsTest : public DeviceTest, public ::testing::WithParamInterface<Codec> {
 protected:
  void SetUp() override {
    if (!HasDevice()) GTEST_SKIP() << "no GPU";
    const Status host = executor::CheckCodec(GetParam());
    if (!host.ok()) GTEST_SKIP() << host.message();
  }
};

// NaN has many bits.
void ExpectSameValues(const ByteVector& found, const ByteVector& expected, ElementType type) {
  const std::vector<float> a = ValuesOf(found, type), b = ValuesOf(expected, type);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    ASSERT_EQ(BitsOf(a[i]), BitsOf(b[i])) << "value " << i << ": " << a[i] << ", expected " << b[i];
  }
}

// Codes of FP16 and BF16 are values themselves, and rows without a codec too.
void ExpectSameCodes(Codec codec, ElementType type, ByteVector found, ByteVector expected) {
  if (codec == Codec::kNone || codec == Codec::kFp8 || codec == Codec::kInt8 || codec == Codec::kZfp ||
      codec == Codec::kFp8Blockwise) {
    EXPECT_EQ(found, expected);
    return;
  }
  if (CodecOnWire(codec, static_cast<int>(BytesOf(type))) == Codec::kBf16) {
    return ExpectSameValues(found, expected, ElementType::kBfloat16);
  }
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); i += 2) {
    uint16_t a, b;
    std::memcpy(&a, &found[i], 2);
    std::memcpy(&b, &expected[i], 2);
    const bool are_nan = (a & 0x7fff) > 0x7c00 && (b & 0x7fff) > 0x7c00;
    ASSERT_TRUE(a == b || are_nan) << "code " << i / 2;
  }
}

TEST_P(CodecKernelsTest, CodesAndValuesAreThoseOfTheHost) {
  constexpr int kLong[] = {8200, kFp8Block + 1, 2 * kFp8Block + 3};
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 100 && !HasFatalFailure(); ++i) {
    const RowShape shape = {.type = RandomType(random), .columns = i < 3 ? kLong[i] : RandomColumns(random)};
    const int cells = Between(random, 1, 3), rows_per_cell = Between(random, 1, 9), rows = cells * rows_per_cell;
    const ElementRowsShape host_shape = {.type = shape.type, .rows = rows, .columns = shape.columns};
    const ByteVector elements = ElementBytes(RandomRows(random, rows, shape.columns), shape.type);
    ByteVector codes = Poisoned(rows * EncodedRowBytes(GetParam(), host_shape)), decoded = Poisoned(elements.size());
    ASSERT_EQ(executor::Encode(GetParam(), host_shape, elements.data(), codes.data()), OkStatus());
    ASSERT_EQ(executor::Decode(GetParam(), host_shape, codes.data(), decoded.data()), OkStatus());

    const CellLayout layout = {.cells_per_block = cells, .rows_per_cell = rows_per_cell};
    const OnDevice<std::byte> in(elements), out(Poisoned(codes.size())), back(Poisoned(elements.size()));
    ASSERT_EQ(Encode(GetParam(), shape, {.data = in.data(), .cells = layout}, out.data(), nullptr), OkStatus());
    ExpectSameCodes(GetParam(), shape.type, out.Read(), codes);
    // From the host's codes, so that what Encode did is no matter.
    const OnDevice<std::byte> given(codes);
    ASSERT_EQ(Decode(GetParam(), shape, given.data(), {.data = back.data(), .cells = layout}, nullptr), OkStatus());
    ExpectSameValues(back.Read(), decoded, shape.type);
  }
}

TEST_P(CodecKernelsTest, RowsBehindTheLastAreLeftAlone) {
  // 2 + 1 of 2 · 3 rows.
  const std::vector<int32_t> counts = {2, 1};
  const std::vector<int64_t> first_rows = {0, 2, 3};
  const OnDevice<int32_t> device_counts(counts);
  const OnDevice<int64_t> device_first(first_rows);
  const RowShape shape = {.columns = 8};
  const std::vector<float> values(6 * 8, 1.0F);
  const OnDevice<std::byte> in(ElementBytes(values, shape.type));
  const size_t row_bytes = EncodedRowBytes(GetParam(), {.type = shape.type, .rows = 6, .columns = 8});
  const OnDevice<std::byte> out(Poisoned(6 * row_bytes));
  const PlacedRows rows = {.data = in.data(),
                           .cells = {.cells_per_block = 2, .rows_per_cell = 3, .counts = device_counts.data()},
                           .first_rows = device_first.data()};
  ASSERT_EQ(Encode(GetParam(), shape, rows, out.data(), nullptr), OkStatus());
  const ByteVector codes = out.Read();
  EXPECT_EQ(ByteVector(codes.begin() + 3 * row_bytes, codes.end()), Poisoned(3 * row_bytes));
  EXPECT_NE(ByteVector(codes.begin() + 2 * row_bytes, codes.begin() + 3 * row_bytes), Poisoned(row_bytes));
}

INSTANTIATE_TEST_SUITE_P(Codecs, CodecKernelsTest,
                         ::testing::Values(Codec::kNone, Codec::kFp16, Codec::kBf16, Codec::kFp8, Codec::kInt8,
                                           Codec::kZfp, Codec::kFp8Blockwise));

class ZfpKernelsTest : public DeviceTest {};

TEST_F(ZfpKernelsTest, BlocksAreTheHeadersWhereThereIsNoLibrary) {
  std::mt19937_64 random(TestSeed());
  const int rows = 50, columns = 8;
  const RowShape shape = {.columns = columns};
  const std::vector<float> values = RandomRows(random, rows, columns);
  const CellLayout layout = {.rows_per_cell = rows};
  const OnDevice<std::byte> in(ElementBytes(values, shape.type)), out(Poisoned(rows * columns));
  ASSERT_EQ(Encode(Codec::kZfp, shape, {.data = in.data(), .cells = layout}, out.data(), nullptr), OkStatus());
  const ByteVector codes = out.Read();
  for (int block = 0; block < rows * columns / kZfpBlock; ++block) {
    float own[kZfpBlock];
    std::copy_n(values.begin() + block * kZfpBlock, kZfpBlock, own);
    uint32_t code;
    std::memcpy(&code, &codes[block * sizeof code], sizeof code);
    EXPECT_EQ(code, ZfpCodeOf(own)) << "block " << block;
  }
}

}  // namespace
}  // namespace moeplan::executor::cuda
