// GRID.json.
#include "proto/convert/workload.h"
#include "tests/fuzz/fuzzed.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moeplan;
  FuzzJsonFile<v1::WorkloadGrid>(TextOf(data, size), WorkloadsFromProto);
  return 0;
}
