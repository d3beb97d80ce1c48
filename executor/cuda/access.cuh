// Elements as device code reads and writes them: kCount neighbouring ones at a time, as floats.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

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

// Stores all elements at once. Left to itself, the compiler stores computed ones one by one.
template <typename Element, int kCount>
__device__ void StoreAccess(const Access<Element, kCount>& access, Access<Element, kCount>* to) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(access) == sizeof(uint4)) {
    uint4 bits;
    memcpy(&bits, &access, sizeof bits);
    __stwb(reinterpret_cast<uint4*>(to), bits);
    return;
  }
  if constexpr (sizeof(access) == sizeof(uint2)) {
    uint2 bits;
    memcpy(&bits, &access, sizeof bits);
    __stwb(reinterpret_cast<uint2*>(to), bits);
    return;
  }
#endif
  *to = access;
}

// Copies the accesses `first`, `first` + `stride`, ... below `end`, several of them under way at a time.
template <typename Taken>
__device__ void CopyAccesses(const Taken* from, Taken* to, int64_t first, int64_t end, int64_t stride) {
  constexpr int kAtOnce = 4;
  for (int64_t i = first; i < end; i += kAtOnce * stride) {
    Taken held[kAtOnce] = {};
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (i + j * stride < end) held[j] = from[i + j * stride];
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (i + j * stride < end) StoreAccess(held[j], to + i + j * stride);
    }
  }
}

template <int kCount, typename Element>
__device__ Access<Element, kCount> LoadAccess(const Element* from) {
  return *reinterpret_cast<const Access<Element, kCount>*>(from);
}

template <int kCount, typename Element>
__device__ void ToValues(const Access<Element, kCount>& access, float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = ValueOf(access.elements[i]);
}

template <int kCount, typename Element>
__device__ void LoadValues(const Element* from, float (&values)[kCount]) {
  ToValues(LoadAccess<kCount>(from), values);
}

template <int kCount, typename Element>
__device__ void StoreValues(const float (&values)[kCount], Element* to) {
  Access<Element, kCount> access;
#pragma unroll
  for (int i = 0; i < kCount; ++i) access.elements[i] = ElementOf<Element>(values[i]);
  StoreAccess(access, reinterpret_cast<Access<Element, kCount>*>(to));
}

// Four neighbouring numbers to shared memory at once; `to` is at a multiple of 16 bytes.
__device__ inline void StoreShared(const float (&values)[4], float* to) {
#ifdef __CUDA_ARCH__
  *reinterpret_cast<float4*>(to) = make_float4(values[0], values[1], values[2], values[3]);
#else
  memcpy(to, values, sizeof values);
#endif
}

// The part of the product of two rows that the accesses `first`, `first` + `stride`, ... below `end` have.
template <int kCount, typename Element>
__device__ float ProductOfLane(const Element* row, const Element* other, int first, int end, int stride) {
  float sum = 0;
#pragma unroll 4
  for (int i = first; i < end; i += stride) {
    float a[kCount], b[kCount];
    LoadValues(row + i * kCount, a);
    LoadValues(other + i * kCount, b);
#pragma unroll
    for (int j = 0; j < kCount; ++j) sum += a[j] * b[j];
  }
  return sum;
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
