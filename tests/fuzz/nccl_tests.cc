// Logs of nccl-tests, text or JSON, by themselves and with what the command line can say of them.
#include "proto/nccl_tests/import.h"

#include <array>
#include <string>

#include "tests/fuzz/imported.h"

namespace moeplan {
namespace {

void Import(std::string_view text, const NcclTestsOptions& options) {
  const std::array logs = {NcclTestsLog{.path = "file", .text = std::string(text)}};
  CheckImport(ImportNcclTests(logs, options));
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
