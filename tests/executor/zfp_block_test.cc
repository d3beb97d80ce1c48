// Our ZFP blocks against libzfp, where this build has it, and against what it made of tests/data/zfp/blocks.txt, where
// not. MOEPLAN_WRITE_ZFP_BLOCKS=FILE makes that file anew.
#include "executor/codec/zfp_block.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iomanip>
#include <random>
#include <vector>

#include "executor/codec/zfp_rows.h"
#include "tests/test_seed.h"

namespace moeplan::executor {
namespace {

using Block = std::array<float, kZfpBlock>;
using BlockBits = std::array<uint32_t, kZfpBlock>;

const char* const kVectors = MOEPLAN_TEST_DATA "/zfp/blocks.txt";
constexpr int kCommittedBlocks = 700;

BlockBits BitsOfBlock(const Block& block) { return std::bit_cast<BlockBits>(block); }

// NaN of whatever bits as one.
BlockBits ComparableBits(Block block) {
  for (float& value : block) value = std::isnan(value) ? FloatOf(0x7fc00000) : value;
  return BitsOfBlock(block);
}

uint32_t OurCode(const Block& block) {
  float values[kZfpBlock];
  std::memcpy(values, block.data(), sizeof values);
  return ZfpCodeOf(values);
}

Block OurValues(uint32_t code) {
  float values[kZfpBlock];
  ZfpValuesOf(code, values);
  return std::to_array(values);
}

uint32_t LibraryCode(ZfpRows& library, const Block& block) {
  uint32_t code = 0;
  library.Encode(block.data(), reinterpret_cast<std::byte*>(&code));
  return code;
}

Block LibraryValues(ZfpRows& library, uint32_t code) {
  Block block;
  library.Decode(reinterpret_cast<const std::byte*>(&code), block.data());
  return block;
}

// Values of one scale, of mixed ones, smooth, sparse, random bits, small whole numbers, and around the extremes.
Block RandomBlock(std::mt19937_64& random) {
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution(low, high)(random); };
  constexpr float kSpecial[] = {0.0F,     -0.0F,    1.0F,      -1.0F,     0x1p-96F,        0x1.fffffep-97F,
                                0x1p-95F, 0x1p127F, -0x1p127F, 0x1p-126F, 0x1.fffffep127F, -0x1.fffffep127F,
                                0x1p-149F};
  const double scale = std::ldexp(1.0, static_cast<int>(uniform(-100, 127)));
  const double slope = uniform(-1, 1), start = uniform(-1, 1);
  const auto kind = random() % 7;
  Block block;
  for (int i = 0; i < kZfpBlock; ++i) {
    switch (kind) {
      case 0: block[i] = static_cast<float>(uniform(-1, 1) * scale); break;
      case 1:
        block[i] = static_cast<float>(uniform(-1, 1) * scale * std::ldexp(1.0, -static_cast<int>(random() % 32)));
        break;
      case 2: block[i] = static_cast<float>((start + slope * i) * scale / 4); break;
      case 3: block[i] = random() % 2 == 0 ? 0.0F : static_cast<float>(uniform(-1, 1) * scale); break;
      case 4: block[i] = FloatOf(static_cast<uint32_t>(random())); break;
      case 5: block[i] = static_cast<float>(static_cast<int>(random() % 9) - 4); break;
      default: block[i] = kSpecial[random() % std::size(kSpecial)];
    }
  }
  return block;
}

class ZfpBlockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    StatusOr<std::unique_ptr<ZfpRows>> library = ZfpRows::Make(kZfpBlock);
    if (library.ok()) library_ = std::move(*library);
  }

  std::unique_ptr<ZfpRows> library_;
};

TEST_F(ZfpBlockTest, CodesOfRandomBlocksAreThoseOfTheLibrary) {
  if (library_ == nullptr) GTEST_SKIP() << "no libzfp";
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 3000000; ++i) {
    const Block block = RandomBlock(random);
    const uint32_t code = LibraryCode(*library_, block);
    ASSERT_EQ(OurCode(block), code) << ::testing::PrintToString(BitsOfBlock(block));
    ASSERT_EQ(ComparableBits(OurValues(code)), ComparableBits(LibraryValues(*library_, code))) << code;
  }
}

TEST_F(ZfpBlockTest, ValuesOfRandomCodesAreThoseOfTheLibrary) {
  if (library_ == nullptr) GTEST_SKIP() << "no libzfp";
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 3000000; ++i) {
    const auto code = static_cast<uint32_t>(random());
    ASSERT_EQ(ComparableBits(OurValues(code)), ComparableBits(LibraryValues(*library_, code))) << code;
  }
}

TEST_F(ZfpBlockTest, BegunBlocksArePaddedAsTheLibraryDoes) {
  if (library_ == nullptr) GTEST_SKIP() << "no libzfp";
  std::mt19937_64 random(TestSeed());
  for (int values = 1; values < kZfpBlock; ++values) {
    const auto library = ZfpRows::Make(values);
    for (int i = 0; i < 100000; ++i) {
      Block block = RandomBlock(random);
      const uint32_t code = LibraryCode(**library, block);
      PadZfpBlock(values, block.data());
      ASSERT_EQ(OurCode(block), code) << values << ::testing::PrintToString(BitsOfBlock(block));
    }
  }
}

// A block, its code, what the code becomes: nine words of bits.
void WriteCommittedBlocks(ZfpRows& library, const char* path) {
  std::mt19937_64 random(1);
  std::ofstream file(path);
  file << std::hex << std::setfill('0');
  for (int i = 0; i < kCommittedBlocks; ++i) {
    const Block block = RandomBlock(random);
    const uint32_t code = LibraryCode(library, block);
    for (const uint32_t bits : BitsOfBlock(block)) file << std::setw(8) << bits << ' ';
    file << std::setw(8) << code;
    for (const uint32_t bits : ComparableBits(LibraryValues(library, code))) file << ' ' << std::setw(8) << bits;
    file << '\n';
  }
  EXPECT_TRUE(file.flush().good());
}

TEST_F(ZfpBlockTest, CommittedBlocksHaveTheCodesThatTheLibraryGaveThem) {
  if (const char* const path = std::getenv("MOEPLAN_WRITE_ZFP_BLOCKS"); path != nullptr) {
    ASSERT_NE(library_, nullptr) << "only libzfp may write them";
    WriteCommittedBlocks(*library_, path);
  }
  std::ifstream file(kVectors);
  file >> std::hex;
  BlockBits in, out;
  uint32_t code;
  int blocks = 0;
  while (file >> in[0] >> in[1] >> in[2] >> in[3] >> code >> out[0] >> out[1] >> out[2] >> out[3]) {
    ++blocks;
    const auto block = std::bit_cast<Block>(in);
    EXPECT_EQ(OurCode(block), code) << "block " << blocks;
    EXPECT_EQ(ComparableBits(OurValues(code)), out) << "block " << blocks;
    if (library_ == nullptr) continue;
    EXPECT_EQ(LibraryCode(*library_, block), code) << "block " << blocks;
    EXPECT_EQ(ComparableBits(LibraryValues(*library_, code)), out) << "block " << blocks;
  }
  EXPECT_TRUE(file.eof());
  EXPECT_EQ(blocks, kCommittedBlocks);
}

}  // namespace
}  // namespace moeplan::executor
