// Fewer of many values, evenly chosen.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace moeplan {

// At most `most` of them, at least 1, evenly spaced by place; of two or more both ends among them. The same values give
// the same choice.
template <typename Value>
std::vector<Value> Thinned(std::vector<Value> values, size_t most) {
  if (values.size() <= most) return values;
  std::vector<Value> kept;
  kept.reserve(most);
  for (size_t i = 0; i < most; ++i) {
    kept.push_back(std::move(values[most == 1 ? 0 : i * (values.size() - 1) / (most - 1)]));
  }
  return kept;
}

}  // namespace moeplan
