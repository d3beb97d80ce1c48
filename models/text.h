// StrCat: pieces joined into one string, numbers printed so that they read back to the same value.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace moeplan {

template <typename Number>
requires(std::integral<Number> && !std::same_as<Number, bool>) || std::floating_point<Number> void AppendPiece(
                                                                      std::string& text, Number number) {
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  text.append(digits, end);
}
void AppendPiece(std::string& text, std::same_as<bool> auto value) { text += value ? "true" : "false"; }
inline void AppendPiece(std::string& text, std::string_view piece) { text += piece; }

template <typename... Pieces>
std::string StrCat(const Pieces&... pieces) {
  std::string text;
  (AppendPiece(text, pieces), ...);
  return text;
}

}  // namespace moeplan
