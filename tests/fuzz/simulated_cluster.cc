// CLUSTER.json, a cluster that is simulated.
#include "proto/convert/simulated_cluster.h"
#include "tests/fuzz/fuzzed.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moeplan;
  FuzzJsonFile<v1::SimulatedCluster>(TextOf(data, size), SimulatedClusterFromProto);
  return 0;
}
