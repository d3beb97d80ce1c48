// Values and routings to measure on.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "executor/codec/values.h"
#include "executor/cuda/placed_rows.h"

namespace moeplan::executor::cuda {

// A prime number of values, so that rows differ.
inline constexpr size_t kPatternValues = 1000003;

inline std::vector<float> FloatPattern() {
  std::mt19937_64 random(1);
  std::vector<float> values(kPatternValues);
  for (float& value : values) value = std::normal_distribution<float>()(random);
  return values;
}
inline std::vector<uint16_t> Bf16Pattern() {
  std::vector<uint16_t> codes;
  for (const float value : FloatPattern()) codes.push_back(Bf16FromFloat(value));
  return codes;
}
template <typename Memory>
void FillElements(const Memory& memory, ElementType type) {
  type == ElementType::kFloat32 ? memory.Fill(FloatPattern()) : memory.Fill(Bf16Pattern());
}
inline const char* NameOf(ElementType type) { return type == ElementType::kFloat32 ? "fp32" : "bf16"; }

}  // namespace moeplan::executor::cuda
