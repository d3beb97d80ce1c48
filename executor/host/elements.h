// Rows of storage elements as floats and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "executor/codec/values.h"
#include "executor/layer/layer_weights.h"
#include "executor/rows.h"

namespace moeplan::executor {

inline size_t BytesOf(ElementType type) { return type == ElementType::kFloat32 ? 4 : 2; }
inline ElementType ElementTypeOf(int bytes_per_element) {
  return bytes_per_element == 4 ? ElementType::kFloat32 : ElementType::kBfloat16;
}

// Reads `count` elements; both may be unaligned to more than an element.
inline void Load(const std::byte* from, ElementType type, size_t count, float* to) {
  if (count == 0) return;  // The pointers may be null.
  if (type == ElementType::kFloat32) {
    if (count > 0) std::memcpy(to, from, count * sizeof(float));  // Rows of nobody may have no address.
    return;
  }
  const auto* half = reinterpret_cast<const uint16_t*>(from);
  for (size_t i = 0; i < count; ++i) to[i] = FloatFromBf16(half[i]);
}

inline void Store(const float* from, ElementType type, size_t count, std::byte* to) {
  if (count == 0) return;
  if (type == ElementType::kFloat32) {
    if (count > 0) std::memcpy(to, from, count * sizeof(float));
    return;
  }
  auto* half = reinterpret_cast<uint16_t*>(to);
  for (size_t i = 0; i < count; ++i) half[i] = Bf16FromFloat(from[i]);
}

// to += from.
inline void Accumulate(const std::byte* from, ElementType type, size_t count, float* to) {
  if (type == ElementType::kFloat32) {
    const auto* values = reinterpret_cast<const float*>(from);
    for (size_t i = 0; i < count; ++i) to[i] += values[i];
    return;
  }
  const auto* half = reinterpret_cast<const uint16_t*>(from);
  for (size_t i = 0; i < count; ++i) to[i] += FloatFromBf16(half[i]);
}

}  // namespace moeplan::executor
