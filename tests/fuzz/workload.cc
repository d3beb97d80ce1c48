// WORKLOAD.json, and the check of what it says.
#include "proto/convert/workload.h"
#include "tests/fuzz/fuzzed.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moeplan;
  FuzzJsonFile<v1::Workload>(TextOf(data, size), [](const v1::Workload& message) -> StatusOr<Workload> {
    ASSIGN_OR_RETURN(Workload workload, WorkloadFromProto(message));
    for (const Cluster& cluster : {Cluster{.nodes = 2, .gpus_per_node = 4}, Cluster{.nodes = 8, .gpus_per_node = 8}}) {
      const StatusOr<Workload> resolved = ResolveWorkload(workload, cluster);
      if (resolved.ok()) {
        MOEPLAN_CHECK(ResolveWorkload(*resolved, cluster).ok());
      } else {
        CheckRefusal(resolved.status());
      }
    }
    return workload;
  });
  return 0;
}
