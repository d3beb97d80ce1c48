// Pages of rows, the newest first: the token of a page is the id of the last row on it.
#pragma once

#include <charconv>
#include <cstdint>
#include <limits>
#include <string>

#include "db/errors.h"
#include "models/status.h"

namespace moeplan::db {

inline constexpr int kLargestPage = 1000;

// The id that all rows of the next page lie below.
inline StatusOr<std::int64_t> IdBelow(const std::string& token) {
  if (token.empty()) return std::numeric_limits<std::int64_t>::max();
  std::int64_t id = 0;
  const char* end = token.data() + token.size();
  const auto [rest, problem] = std::from_chars(token.data(), end, id);
  if (problem != std::errc() || rest != end || id < 1) return error::BadPageToken(token);
  return id;
}

}  // namespace moeplan::db
