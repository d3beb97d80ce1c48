// Traces of routers, of eight experts, of all layers and of one.
#include "proto/router_trace/read.h"

#include <cmath>
#include <sstream>
#include <string>

#include "tests/fuzz/fuzzed.h"

namespace moeplan {
namespace {

void Read(std::string_view text, std::optional<int> layer) {
  constexpr int kExperts = 8;
  StatusOr<RouterTraceReader> reader = RouterTraceReader::Make({.experts = kExperts, .layer = layer});
  MOEPLAN_CHECK(reader.ok());
  std::istringstream trace{std::string(text)};
  if (const Status status = reader->Read(trace, "file"); !status.ok()) return CheckRefusal(status);
  const StatusOr<std::vector<double>> tokens = reader->TokensPerExpert();
  if (!tokens.ok()) return CheckRefusal(tokens.status());
  MOEPLAN_CHECK(tokens->size() == kExperts);
  double sum = 0;
  for (const double count : *tokens) {
    MOEPLAN_CHECK(std::isfinite(count) && count >= 0);
    sum += count;
  }
  MOEPLAN_CHECK(sum > 0);
}

}  // namespace
}  // namespace moeplan

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  moeplan::Read(moeplan::TextOf(data, size), std::nullopt);
  moeplan::Read(moeplan::TextOf(data, size), 1);
  return 0;
}
