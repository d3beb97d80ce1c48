// Elements as device code reads and writes them: kCount neighbouring ones at a time, as floats.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "executor/codec/values.h"
#include "executor/rows.h"

namespace moeplan::executor::cuda {

struct Bfloat16 {
  uint16_t bits;
};

__device__ inline float ValueOf(float element) { return element; }
__device__ inline float ValueOf(Bfloat16 element) { return FloatFromBf16(element.bits); }

// To nearest, ties to even; NaN stays NaN.
template <typename Element>
__device__ Element ElementOf(float value);
template <>
__device__ inline float ElementOf<float>(float value) {
  return value;
}
template <>
__device__ inline Bfloat16 ElementOf<Bfloat16>(float value) {
#ifdef __CUDA_ARCH__
  Bfloat16 element;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(element.bits) : "f"(value));
  return element;
#else
  return {Bf16FromFloat(value)};
#endif
}

template <typename Element, int kCount>
struct alignas(sizeof(Element) * kCount) Access {
  Element elements[kCount];
};

template <int kCount, typename Element>
__device__ void LoadValues(const Element* from, float (&values)[kCount]) {
  const auto access = *reinterpret_cast<const Access<Element, kCount>*>(from);
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = ValueOf(access.elements[i]);
}

template <int kCount, typename Element>
__device__ void StoreValues(const float (&values)[kCount], Element* to) {
  Access<Element, kCount> access;
#pragma unroll
  for (int i = 0; i < kCount; ++i) access.elements[i] = ElementOf<Element>(values[i]);
  *reinterpret_cast<Access<Element, kCount>*>(to) = access;
}

// The sum over a warp, in the same order at every call; all lanes get it.
template <typename Number>
__device__ Number SumOfWarp(Number value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffff, value, distance);
  return value;
}

// Calls function(Element{}, elements per access as an integral constant), so that a kernel is chosen by what the host
// knows at run time.
template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};
template <typename Function>
void ForElements(ElementType type, int elements_per_access, Function function) {
  if (type == ElementType::kFloat32) {
    elements_per_access == 1 ? function(float{}, Constant<1>{}) : function(float{}, Constant<4>{});
  } else {
    elements_per_access == 1 ? function(Bfloat16{}, Constant<1>{}) : function(Bfloat16{}, Constant<8>{});
  }
}

}  // namespace moeplan::executor::cuda
