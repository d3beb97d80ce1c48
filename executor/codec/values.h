// One value to its code and back: BF16, FP16, FP8 E4M3, INT8. Rounds to nearest, ties to even, in every format.
//
// Selects rather than branches, so that loops over them vectorise. For host and device alike: no library but the
// language's own.
#pragma once

#include <cstdint>

#include "models/host_and_device.h"

namespace moeplan::executor {

// FP8 and INT8 rows are scaled so that their largest magnitude becomes this.
inline constexpr float kLargestFp8 = 448;
inline constexpr float kLargestInt8 = 127;

MOEPLAN_HD inline uint32_t BitsOf(float value) { return __builtin_bit_cast(uint32_t, value); }
MOEPLAN_HD inline float FloatOf(uint32_t bits) { return __builtin_bit_cast(float, bits); }

// NaN stays NaN; beyond the largest finite value: infinity.
MOEPLAN_HD inline uint16_t Bf16FromFloat(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  return static_cast<uint16_t>((value == value ? rounded : (bits | 0x400000)) >> 16);
}
MOEPLAN_HD inline float FloatFromBf16(uint16_t code) { return FloatOf(static_cast<uint32_t>(code) << 16); }

// IEEE half precision. What rounds beyond 65504 becomes infinity, as IEEE says and loss scaling looks for: a saturated
// value would be wrong without a sign of it. NaN stays NaN.
MOEPLAN_HD inline uint16_t Fp16FromFloat(float value) {
  const uint32_t bits = BitsOf(value);
  const auto magnitude = static_cast<int32_t>(bits & 0x7fffffff);
  // Beside 0.5, whose last digit is 2^-24, the sum keeps the digits that a subnormal code has.
  const auto subnormal = static_cast<int32_t>(BitsOf(FloatOf(magnitude) + 0.5F) - BitsOf(0.5F));
  const int32_t normal = (magnitude - (112 << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  const int32_t beyond = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
  const int32_t small = magnitude < 0x38800000 ? subnormal : normal;  // 2^-14
  const int32_t code = magnitude < 0x47800000 ? small : beyond;       // 2^16
  return static_cast<uint16_t>(static_cast<uint32_t>(code) | ((bits >> 16) & 0x8000));
}
MOEPLAN_HD inline float FloatFromFp16(uint16_t code) {
  const uint32_t digits = static_cast<uint32_t>(code & 0x7fff) << 13;
  const uint32_t normal = digits + (112U << 23);
  const uint32_t subnormal = BitsOf(FloatOf(digits + (113U << 23)) - FloatOf(113U << 23));
  const uint32_t finite = digits < (1U << 23) ? subnormal : normal;
  const uint32_t magnitude = digits < (31U << 23) ? finite : digits + (224U << 23);
  return FloatOf(magnitude | (static_cast<uint32_t>(code & 0x8000) << 16));
}

// OCP E4M3: no infinities, NaN is 0x7f and 0xff. What rounds beyond ±448, infinity too, becomes ±448; NaN stays NaN.
MOEPLAN_HD inline uint8_t Fp8FromFloat(float value) {
  const uint32_t bits = BitsOf(value);
  const auto magnitude = static_cast<int32_t>(bits & 0x7fffffff);
  // As with FP16: the last digit of 2^14 is 2^-9.
  const auto subnormal = static_cast<int32_t>(BitsOf(FloatOf(magnitude) + 16384.0F) - BitsOf(16384.0F));
  const int32_t normal = (magnitude - (120 << 23) + 0x7ffff + ((magnitude >> 20) & 1)) >> 20;
  const int32_t saturated = normal < 0x7e ? normal : 0x7e;
  const int32_t finite = magnitude < 0x3c800000 ? subnormal : saturated;  // 2^-6
  const int32_t code = magnitude > 0x7f800000 ? 0x7f : finite;
  return static_cast<uint8_t>(static_cast<uint32_t>(code) | ((bits >> 24) & 0x80));
}
MOEPLAN_HD inline float FloatFromFp8(uint8_t code) {
  const auto digits = static_cast<int32_t>(code & 0x7f);
  const uint32_t normal = (static_cast<uint32_t>(digits) << 20) + (120U << 23);
  const uint32_t subnormal = BitsOf(static_cast<float>(digits) * 0x1p-9F);
  const uint32_t finite = digits < 8 ? subnormal : normal;
  const uint32_t magnitude = digits < 0x7f ? finite : 0x7fc00000;
  return FloatOf(magnitude | (static_cast<uint32_t>(code & 0x80) << 24));
}

// What rounds beyond ±127 becomes ±127. Not for NaN.
MOEPLAN_HD inline int8_t Int8FromFloat(float value) {
  const float above = value < -kLargestInt8 ? -kLargestInt8 : value;
  const float within = above > kLargestInt8 ? kLargestInt8 : above;
  constexpr float kWholeNumbers = 0x1.8p23F;  // Its last digit is 1.
  return static_cast<int8_t>(BitsOf(within + kWholeNumbers) - BitsOf(kWholeNumbers));
}
MOEPLAN_HD inline float FloatFromInt8(int8_t code) { return code; }

// The scale of a row whose largest magnitude has these bits: at least the smallest normal float, so that its inverse is
// finite; NaN where that is not finite.
MOEPLAN_HD inline float RowScale(uint32_t largest_magnitude_bits, float largest_code) {
  if (largest_magnitude_bits >= 0x7f800000) return FloatOf(0x7fc00000);
  const float scale = FloatOf(largest_magnitude_bits) / largest_code;
  return scale < 0x1p-126F ? 0x1p-126F : scale;
}

}  // namespace moeplan::executor
