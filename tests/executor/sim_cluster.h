// A small simulated cluster with round numbers.
#pragma once

#include "models/cluster/simulated_cluster.h"

namespace moeplan::testing {

// Two nodes of two GPUs; a bus of 10 GB/s and 5 µs, an interface of 4 GB/s and 3 µs.
inline SimulatedCluster SmallCluster() {
  return {.name = "small",
          .nodes = 2,
          .gpus_per_node = 2,
          .gpu = {.peak_flops_per_s = 1e13,
                  .gemm_efficiency = 0.5,
                  .memory_bytes_per_s = 1e12,
                  .device_memory_bytes = 1e10,
                  .launch_s = 2e-6},
          .gpu_link = {.kind = GpuLinkKind::kSharedBus, .bytes_per_s = 1e10, .latency_s = 5e-6},
          .nic = {.bytes_per_s = 4e9, .latency_s = 3e-6}};
}

}  // namespace moeplan::testing
