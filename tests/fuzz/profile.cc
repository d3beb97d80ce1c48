// PROFILE.json.
#include "proto/convert/profile.h"
#include "tests/fuzz/fuzzed.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moeplan;
  FuzzJsonFile<v1::Profile>(TextOf(data, size), ProfileFromProto);
  return 0;
}
