// What DeepEP's own tests print, read as tests of one node, of two and of eight.
#include "proto/deepep_tests/import.h"

#include <array>
#include <string>

#include "tests/fuzz/imported.h"

namespace moeplan {
namespace {

void Import(std::string_view text, const DeepEpTestsOptions& options) {
  const std::array logs = {DeepEpTestsLog{.path = "file", .text = std::string(text)}};
  CheckImport(ImportDeepEpTests(logs, options));
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
