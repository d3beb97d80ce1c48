// A block of the ZFP codec: 4 values to 32 bits and back, bit for bit what libzfp 1.0.0 makes of them at the fixed rate
// of 8 bits a value in one dimension; and what it cannot code.
//
// The format (P. Lindstrom, "Fixed-Rate Compressed Floating-Point Arrays", 2014): 1 bit "not all zero", 8 bits of the
// common exponent e, then 23 bits of the four coefficients of the block in units of 2^(e-30) and in base -2, bit plane
// by bit plane from the highest; of each plane the coefficients that showed before as they are, the others by tests
// whether any of them shows.
//
// For host and device alike: no library but the language's own.
#pragma once

#include <cstdint>

#include "executor/codec/values.h"
#include "models/host_and_device.h"
#include "models/workload/codec.h"

namespace moeplan::executor {

// A block whose first bit is 0 is all zeros, and libzfp leaves the other bits 0 too: room to say "not finite".
inline constexpr uint32_t kZfpNotFinite = 0xfffffffe;

// What stands behind the last value of a row in its last block.
MOEPLAN_HD inline void PadZfpBlock(int values, float* block) {
  if (values < 2) block[1] = block[0];
  if (values < 3) block[2] = block[1];
  if (values < 4) block[3] = block[0];
}

namespace zfp_block {

inline constexpr int kExponentBias = 127;
inline constexpr int kFractionBits = 30;
inline constexpr int kHeaderBits = 9, kBlockBits = 32;
inline constexpr uint32_t kNegabinary = 0xaaaaaaaa;

// The number of bits below the lowest 1. Requires a 1.
MOEPLAN_HD inline int LowestOne(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __ffs(static_cast<int>(bits)) - 1;
#else
  return __builtin_ctz(bits);
#endif
}

MOEPLAN_HD inline float NormalPowerOfTwo(int exponent) {
  return FloatOf(static_cast<uint32_t>(exponent + kExponentBias) << 23);
}
MOEPLAN_HD inline float PowerOfTwo(int exponent) {
  if (exponent >= -126) return NormalPowerOfTwo(exponent);
  return exponent >= -149 ? FloatOf(1U << (exponent + 149)) : 0.0F;
}

// Bit i of the lowest byte to bit 4·i, and back.
MOEPLAN_HD inline uint32_t ByteToNibbles(uint32_t bits) {
  bits = (bits | (bits << 12)) & 0x000f000f;
  bits = (bits | (bits << 6)) & 0x03030303;
  return (bits | (bits << 3)) & 0x11111111;
}
MOEPLAN_HD inline uint32_t NibblesToByte(uint32_t bits) {
  bits &= 0x11111111;
  bits = (bits | (bits >> 3)) & 0x03030303;
  bits = (bits | (bits >> 6)) & 0x000f000f;
  return (bits | (bits >> 12)) & 0xff;
}

// Additions and shifts as of whole numbers in two's complement, which wrap.
MOEPLAN_HD inline int32_t Sum(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}
MOEPLAN_HD inline int32_t Difference(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) - static_cast<uint32_t>(b));
}
MOEPLAN_HD inline int32_t Twice(int32_t a) { return static_cast<int32_t>(static_cast<uint32_t>(a) << 1); }

// The lifted transform with the rows (4, 4, 4, 4), (5, 1, -1, -5), (-4, 4, 4, -4), (-2, 6, -6, 2) over 16.
MOEPLAN_HD inline void Transform(int32_t (&v)[kZfpBlock]) {
  v[0] = Sum(v[0], v[3]) >> 1;
  v[3] = Difference(v[3], v[0]);
  v[2] = Sum(v[2], v[1]) >> 1;
  v[1] = Difference(v[1], v[2]);
  v[0] = Sum(v[0], v[2]) >> 1;
  v[2] = Difference(v[2], v[0]);
  v[3] = Sum(v[3], v[1]) >> 1;
  v[1] = Difference(v[1], v[3]);
  v[3] = Sum(v[3], v[1] >> 1);
  v[1] = Difference(v[1], v[3] >> 1);
}
MOEPLAN_HD inline void TransformBack(int32_t (&v)[kZfpBlock]) {
  v[1] = Sum(v[1], v[3] >> 1);
  v[3] = Difference(v[3], v[1] >> 1);
  v[1] = Sum(v[1], v[3]);
  v[3] = Difference(Twice(v[3]), v[1]);
  v[2] = Sum(v[2], v[0]);
  v[0] = Difference(Twice(v[0]), v[2]);
  v[1] = Sum(v[1], v[2]);
  v[2] = Difference(Twice(v[2]), v[1]);
  v[3] = Sum(v[3], v[0]);
  v[0] = Difference(Twice(v[0]), v[3]);
}

// Bits one behind the other; what does not fit into the block falls off.
struct BitsOut {
  uint64_t bits = 0;
  int used = 0;

  MOEPLAN_HD void Write(uint32_t value, int count) {
    bits |= static_cast<uint64_t>(value) << used;
    used += count;
  }
};

// One plane, bit i that of coefficient i, of which the first `shown` have shown; the new `shown`.
MOEPLAN_HD inline int WritePlane(uint32_t plane, int shown, BitsOut& out) {
  out.Write(plane & ((1U << shown) - 1), shown);
  plane >>= shown;
  while (shown < kZfpBlock) {
    if (plane == 0) {
      out.Write(0, 1);
      break;
    }
    const int skipped = LowestOne(plane);
    // Where only the last coefficient is left, the test says all.
    const bool is_last = shown + skipped == kZfpBlock - 1;
    out.Write(is_last ? 1U : 1U | (2U << skipped), skipped + (is_last ? 1 : 2));
    plane >>= skipped + 1;
    shown += skipped + 1;
  }
  return shown;
}

MOEPLAN_HD inline void WritePlanes(const uint32_t (&coefficients)[kZfpBlock], BitsOut& out) {
  int shown = 0;
  for (int byte = 3; byte >= 0 && out.used < kBlockBits; --byte) {
    uint32_t planes = 0;
    for (int i = 0; i < kZfpBlock; ++i) planes |= ByteToNibbles((coefficients[i] >> (8 * byte)) & 0xff) << i;
    for (int plane = 7; plane >= 0 && out.used < kBlockBits; --plane) {
      shown = WritePlane((planes >> (4 * plane)) & 0xf, shown, out);
    }
  }
}

struct BitsIn {
  uint32_t bits;
  int left;

  MOEPLAN_HD uint32_t Read(int count) {
    const uint32_t value = bits & ((1U << count) - 1);
    bits >>= count;
    left -= count;
    return value;
  }
};

MOEPLAN_HD inline uint32_t ReadPlane(int& shown, BitsIn& in) {
  uint32_t plane = in.Read(shown < in.left ? shown : in.left);
  while (in.left > 0 && shown < kZfpBlock && in.Read(1) != 0) {
    const int to_last = kZfpBlock - 1 - shown;
    const int most = to_last < in.left ? to_last : in.left;
    const int skipped = LowestOne(in.bits | (1U << most));
    in.Read(skipped < most ? skipped + 1 : most);
    shown += skipped;
    plane |= 1U << shown;
    ++shown;
  }
  return plane;
}

MOEPLAN_HD inline void ReadPlanes(BitsIn in, uint32_t (&coefficients)[kZfpBlock]) {
  for (uint32_t& coefficient : coefficients) coefficient = 0;
  int shown = 0;
  for (int byte = 3; byte >= 0 && in.left > 0; --byte) {
    uint32_t planes = 0;
    for (int plane = 7; plane >= 0 && in.left > 0; --plane) planes |= ReadPlane(shown, in) << (4 * plane);
    for (int i = 0; i < kZfpBlock; ++i) coefficients[i] |= NibblesToByte(planes >> i) << (8 * byte);
  }
}

}  // namespace zfp_block

// Zeros where no magnitude reaches kZfpSmallest, kZfpNotFinite where one is not finite.
MOEPLAN_HD inline uint32_t ZfpCodeOf(const float (&values)[kZfpBlock]) {
  using namespace zfp_block;
  uint32_t largest = 0;
  for (const float value : values) {
    const uint32_t magnitude = BitsOf(value) & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  if (largest >= 0x7f800000) return kZfpNotFinite;
  if (FloatOf(largest) < static_cast<float>(kZfpSmallest)) return 0;
  const int exponent = static_cast<int>(largest >> 23) - kExponentBias + 1;  // 2^(exponent-1) <= largest < 2^exponent.
  const float scale = NormalPowerOfTwo(kFractionBits - exponent);
  int32_t scaled[kZfpBlock];
  for (int i = 0; i < kZfpBlock; ++i) scaled[i] = static_cast<int32_t>(values[i] * scale);
  Transform(scaled);
  uint32_t coefficients[kZfpBlock];
  for (int i = 0; i < kZfpBlock; ++i) {
    coefficients[i] = (static_cast<uint32_t>(scaled[i]) + kNegabinary) ^ kNegabinary;
  }
  BitsOut out;
  out.Write(2 * static_cast<uint32_t>(exponent + kExponentBias) + 1, kHeaderBits);
  WritePlanes(coefficients, out);
  return static_cast<uint32_t>(out.bits);
}

// NaN for kZfpNotFinite.
MOEPLAN_HD inline void ZfpValuesOf(uint32_t code, float (&values)[kZfpBlock]) {
  using namespace zfp_block;
  if ((code & 1) == 0) {
    for (float& value : values) value = FloatOf(code == kZfpNotFinite ? 0x7fc00000 : 0);
    return;
  }
  uint32_t coefficients[kZfpBlock];
  ReadPlanes({.bits = code >> kHeaderBits, .left = kBlockBits - kHeaderBits}, coefficients);
  int32_t scaled[kZfpBlock];
  for (int i = 0; i < kZfpBlock; ++i) {
    scaled[i] = static_cast<int32_t>((coefficients[i] ^ kNegabinary) - kNegabinary);
  }
  TransformBack(scaled);
  const int exponent = static_cast<int>((code >> 1) & 0xff) - kExponentBias;
  const float scale = PowerOfTwo(exponent - kFractionBits);
  for (int i = 0; i < kZfpBlock; ++i) values[i] = static_cast<float>(scaled[i]) * scale;
}

}  // namespace moeplan::executor
