// What DeepEP's own tests print, read as tests of one node, of two and of eight.
#include "proto/convert/samples.h"
#include "proto/deepep_tests/import.h"

#include <array>
#include <string>

#include "tests/fuzz/fuzzed.h"

namespace moeplan {
namespace {

void Import(std::string_view text, const DeepEpTestsOptions& options) {
  const std::array logs = {DeepEpTestsLog{.path = "file", .text = std::string(text)}};
  const StatusOr<DeepEpTestsImport> import = ImportDeepEpTests(logs, options);
  if (!import.ok()) return CheckRefusal(import.status());
  MOEPLAN_CHECK(ValidateSamples(import->samples).ok());
  const StatusOr<SampleSet> again = SamplesFromProto(ToProto(import->samples));
  MOEPLAN_CHECK(again.ok() && *again == import->samples);
}

}  // namespace
}  // namespace moeplan

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moeplan;
  const std::string_view text = TextOf(data, size);
  for (const GroupShape group : {GroupShape{8, 8}, GroupShape{16, 8}, GroupShape{64, 8}}) {
    Import(text, {.group = group, .transport = group.size == 8 ? Transport::kNccl : Transport::kNvshmem});
  }
  return 0;
}
