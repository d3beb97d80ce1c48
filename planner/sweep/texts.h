// Reading the texts of sweeps.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moeplan::planner {

// The whole of `text` as a number.
template <typename Number>
std::optional<Number> NumberOf(const std::string& text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// "a,,b" at ',' to "a", "" and "b"; an empty text is one empty part.
std::vector<std::string> SplitAt(std::string_view text, char separator);

}  // namespace moeplan::planner
