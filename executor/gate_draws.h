// What gates do beside scores, for host and device alike: experts that are drawn rather than chosen, and the order of
// scores. Whole numbers, so that every backend draws and orders alike.
#pragma once

#include <cstdint>

#include "executor/codec/values.h"
#include "executor/layer/mix.h"
#include "models/host_and_device.h"

namespace moeplan::executor {

inline constexpr uint64_t kDrawSeed = 0x6d6f65706c616e;

// The key that a token draws with: its index in the source batch, or the values of its row, one after the other, from
// kDrawSeed on.
MOEPLAN_HD inline uint64_t KeyOfToken(int index) { return Mix(kDrawSeed + index); }
MOEPLAN_HD inline uint64_t KeyWithValue(uint64_t key, float value) { return Mix(key ^ BitsOf(value)); }

// Different experts, every choice a draw among those that are left.
MOEPLAN_HD inline void DrawExperts(uint64_t key, int experts, int choices, int32_t* drawn) {
  for (int choice = 0; choice < choices; ++choice) {
    const auto is_drawn = [&](int32_t expert) {
      for (int i = 0; i < choice; ++i) {
        if (drawn[i] == expert) return true;
      }
      return false;
    };
    // A share of the range rather than a remainder, which would favour low numbers.
    uint64_t skip = (Mix(key + choice) >> 32) * (experts - choice) >> 32;
    int32_t expert = 0;
    while (is_drawn(expert) || skip-- > 0) ++expert;
    drawn[choice] = expert;
  }
}

// Ordered as scores are: a larger number for a larger score, the largest of all for any NaN.
MOEPLAN_HD inline uint32_t OrderOf(float score) {
  const uint32_t bits = BitsOf(score);
  if (score != score) return 0xffffffff;
  return bits >> 31 == 0 ? bits | 0x80000000 : ~bits;
}

}  // namespace moeplan::executor
