#include "planner/service/descriptors.h"

#include <sys/resource.h>

#include <algorithm>

namespace moeplan::service {
namespace {

constexpr std::uint64_t kOfHttp = 512;  // Its connections (http/endpoint.cc).
constexpr std::uint64_t kOfTheRest = 128;

}  // namespace

std::uint64_t RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return RLIM_INFINITY;
  const rlimit raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
  return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

int GrpcConnectionsWithin(std::uint64_t descriptors, int asked) {
  constexpr std::uint64_t kBeside = kOfHttp + kOfTheRest;
  const std::uint64_t fit = descriptors > kBeside ? descriptors - kBeside : 1;
  return static_cast<int>(std::min<std::uint64_t>(fit, asked));
}

}  // namespace moeplan::service
