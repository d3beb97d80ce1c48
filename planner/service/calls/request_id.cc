#include "planner/service/calls/request_id.h"

#include <algorithm>
#include <random>

namespace moeplan::service {
namespace {

constexpr size_t kMaxBytes = 128;

bool Printable(char byte) { return byte > ' ' && byte <= '~'; }

std::string NewId() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::string id;
  for (uint64_t bits = random(), i = 0; i < 12; ++i, bits >>= 4) id.push_back("0123456789abcdef"[bits & 15]);
  return id;
}

}  // namespace

std::string RequestId(std::string_view offered) {
  if (!offered.empty() && offered.size() <= kMaxBytes && std::all_of(offered.begin(), offered.end(), Printable)) {
    return std::string(offered);
  }
  return NewId();
}

}  // namespace moeplan::service
