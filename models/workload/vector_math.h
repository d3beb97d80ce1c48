// erf and exp of floats without branches and calls, so that compilers make loops over them vector code: the scalar ones
// of libm are calls, one value at a time. In double precision they are the library's. On a device exp and 1 / x of
// floats are one instruction of its special functions each, because those of the library have branches, which keep a
// thread from working on several values at a time.
//
// The rational function of erf is the minimax one of XLA and Eigen (ErfImpl32, generic_fast_erf_float); the polynomial
// of exp is that of Cephes (expf.c). tests/models/vector_math_test.cc holds both to their bounds. Pure.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "models/host_and_device.h"

namespace moeplan::vector_math {

MOEPLAN_HD inline double Erf(double x) { return std::erf(x); }
MOEPLAN_HD inline double Exp(double x) { return std::exp(x); }
MOEPLAN_HD inline double Reciprocal(double x) { return 1 / x; }

#ifdef __CUDA_ARCH__
// The error is at most (2 + 1.2 |x|) 2^-23 of the value; a result below the normal floats is 0.
MOEPLAN_HD inline float Exp(float x) {
  constexpr float kLog2E = 1.44269504088896341F;
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x * kLog2E));
  return value;
}
// The error is at most 2^-23 of the value; x and results below the normal floats count as 0.
MOEPLAN_HD inline float Reciprocal(float x) {
  float value;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}
#else
MOEPLAN_HD inline float Reciprocal(float x) { return 1 / x; }

// The error is at most 2e-7 of the value; beyond what floats hold, the largest and smallest normal ones.
MOEPLAN_HD inline float Exp(float x) {
  constexpr float kMost = 88.3762626647949F, kLeast = -87.3365447505531F;
  const float clamped = x < kLeast ? kLeast : x > kMost ? kMost : x;
  constexpr float kLog2E = 1.44269504088896341F,
                  kRound = 12582912.0F;  // 1.5 · 2^23: adding it rounds to whole numbers.
  const float rounded = clamped * kLog2E + kRound, power = rounded - kRound;
  // ln 2 in two parts, so that the first times a power is exact.
  const float rest = (clamped - power * 0.693359375F) - power * -2.12194440e-4F;
  float sum = 1.9875691500E-4F;
  sum = sum * rest + 1.3981999507E-3F;
  sum = sum * rest + 8.3334519073E-3F;
  sum = sum * rest + 4.1665795894E-2F;
  sum = sum * rest + 1.6666665459E-1F;
  sum = sum * rest + 5.0000001201E-1F;
  const float mantissa = sum * rest * rest + rest + 1;
  // The power stands in the last bits of what was rounded, too; from there it becomes an exponent.
  uint32_t bits, zero;
  std::memcpy(&bits, &rounded, sizeof bits);
  std::memcpy(&zero, &kRound, sizeof zero);
  bits = (bits - zero + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return mantissa * scale;
}
#endif

// The error is at most 4e-7 of the value, and on a device what Reciprocal adds to that.
MOEPLAN_HD inline float Erf(float x) {
  constexpr float kOne = 3.832506856900711F;  // Beyond it, erf is 1 as far as a float can tell.
  const float clamped = x < -kOne ? -kOne : x > kOne ? kOne : x;
  const float square = clamped * clamped;
  float above = -2.72614225801306e-10F;
  above = above * square + 2.77068142495902e-08F;
  above = above * square + -2.10102402082508e-06F;
  above = above * square + -5.69250639462346e-05F;
  above = above * square + -7.34990630326855e-04F;
  above = above * square + -2.95459980854025e-03F;
  above = above * square + -1.60960333262415e-02F;
  float below = -1.45660718464996e-05F;
  below = below * square + -2.13374055278905e-04F;
  below = below * square + -1.68282697438203e-03F;
  below = below * square + -7.37332916720468e-03F;
  below = below * square + -1.42647390514189e-02F;
#ifdef __CUDA_ARCH__
  return clamped * above * Reciprocal(below);
#else
  return clamped * above / below;
#endif
}

}  // namespace moeplan::vector_math
