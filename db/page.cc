#include "db/page.h"

#include <charconv>
#include <limits>

#include "db/errors.h"

namespace moeplan::db {
namespace {

constexpr int kLargestPage = 1000;

}  // namespace

Status CheckPageSize(int size) {
  return size >= 1 && size <= kLargestPage ? OkStatus() : error::BadPageSize(size, kLargestPage);
}

StatusOr<std::int64_t> FirstIdAbove(const PageRequest& page) {
  RETURN_IF_ERROR(CheckPageSize(page.size));
  if (page.token.empty()) return std::numeric_limits<std::int64_t>::max();
  std::int64_t id = 0;
  const char* const end = page.token.data() + page.token.size();
  const auto [rest, problem] = std::from_chars(page.token.data(), end, id);
  if (problem != std::errc() || rest != end || id < 1) return error::BadPageToken(page.token);
  return id;
}

}  // namespace moeplan::db
