// The codecs of executor/codec/values.h for several neighbouring values at a time.
#pragma once

#include <cuda_runtime_api.h>

#include "executor/codec/values.h"

namespace moeplan::executor::cuda {

// Four codes of one byte each, the first in the lowest byte. For finite values alone.
struct Fp8Code {
  static constexpr float kLargest = kLargestFp8;

  __device__ static uint8_t CodeOf(float value) { return Fp8FromFloat(value); }
  __device__ static float ValueOf(uint8_t code) { return FloatFromFp8(code); }
  __device__ static void ValuesOf(uint32_t codes, float* values) {
#if __CUDA_ARCH__ >= 890
    for (int i = 0; i < 4; i += 2) {
      uint32_t halves;
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes >> (8 * i))));
      asm("cvt.f32.f16 %0, %1;" : "=f"(values[i]) : "h"(static_cast<uint16_t>(halves)));
      asm("cvt.f32.f16 %0, %1;" : "=f"(values[i + 1]) : "h"(static_cast<uint16_t>(halves >> 16)));
    }
#else
    for (int i = 0; i < 4; ++i) values[i] = ValueOf(static_cast<uint8_t>(codes >> (8 * i)));
#endif
  }
  __device__ static uint32_t CodesOf(const float* values) {
#if __CUDA_ARCH__ >= 890
    uint16_t low, high;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(values[1]), "f"(values[0]));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(values[3]), "f"(values[2]));
    return low | static_cast<uint32_t>(high) << 16;
#else
    uint32_t codes = 0;
    for (int i = 0; i < 4; ++i) codes |= static_cast<uint32_t>(CodeOf(values[i])) << (8 * i);
    return codes;
#endif
  }
};

struct Int8Code {
  static constexpr float kLargest = kLargestInt8;

  __device__ static uint8_t CodeOf(float value) { return static_cast<uint8_t>(Int8FromFloat(value)); }
  __device__ static float ValueOf(uint8_t code) { return FloatFromInt8(static_cast<int8_t>(code)); }
  __device__ static void ValuesOf(uint32_t codes, float* values) {
    for (int i = 0; i < 4; ++i) values[i] = ValueOf(static_cast<uint8_t>(codes >> (8 * i)));
  }
  __device__ static uint32_t CodesOf(const float* values) {
    uint32_t codes = 0;
    for (int i = 0; i < 4; ++i) codes |= static_cast<uint32_t>(CodeOf(values[i])) << (8 * i);
    return codes;
  }
};

struct Fp16Code {
  __device__ static uint16_t CodeOf(float value) { return Fp16FromFloat(value); }
  __device__ static float ValueOf(uint16_t code) { return FloatFromFp16(code); }
};
struct Bf16Code {
  __device__ static uint16_t CodeOf(float value) { return Bf16FromFloat(value); }
  __device__ static float ValueOf(uint16_t code) { return FloatFromBf16(code); }
};

}  // namespace moeplan::executor::cuda
