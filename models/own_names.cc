#include "models/own_names.h"

#include <algorithm>

namespace moeplan {

Status CheckOwnName(std::string_view name) {
  constexpr size_t kShortest = 2, kLongest = 32;
  const auto is_capital = [](char c) { return c >= 'A' && c <= 'Z'; };
  const auto fits = [&](char c) { return is_capital(c) || (c >= '0' && c <= '9') || c == '_'; };
  const bool reserved = name == "UNSPECIFIED" || name == "OTHER";  // What messages call no value.
  const bool sound = !reserved && name.size() >= kShortest && name.size() <= kLongest && is_capital(name.front()) &&
                     std::ranges::all_of(name, fits);
  if (sound) return OkStatus();
  return InvalidInput(StrCat("name: found \"", name.substr(0, 2 * kLongest), "\", expected ", kShortest, " to ",
                             kLongest, " capitals, digits and underscores, a capital first"));
}

}  // namespace moeplan
