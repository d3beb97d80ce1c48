// Logs of nccl-tests, text or JSON, by themselves and with what the command line can say of them.
#include "proto/nccl_tests/import.h"

#include <array>
#include <string>

#include "proto/convert/samples.h"
#include "tests/fuzz/fuzzed.h"

namespace moeplan {
namespace {

void Import(std::string_view text, const NcclTestsOptions& options) {
  const std::array logs = {NcclTestsLog{.path = "file", .text = std::string(text)}};
  const StatusOr<NcclTestsImport> import = ImportNcclTests(logs, options);
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
  Import(text, {});
  Import(text, {.in_place = true,
                .collective = Collective::kAllToAll,
                .group = GroupShape{.size = 4, .ranks_per_node = 2},
                .nodes = 2,
                .gpus_per_node = 4});
  return 0;
}
