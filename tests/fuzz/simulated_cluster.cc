// CLUSTER.json, a cluster that is simulated, and EMULATED.json, one that is emulated.
#include "proto/convert/simulated_cluster.h"
#include "moeplan/v1/cluster.pb.h"
#include "tests/fuzz/fuzzed.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moeplan;
  FuzzJsonFile<v1::SimulatedCluster>(TextOf(data, size), SimulatedClusterFromProto);
  FuzzJsonMessage<v1::EmulatedCluster>(TextOf(data, size));
  return 0;
}
