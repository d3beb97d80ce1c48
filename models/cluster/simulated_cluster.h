// A cluster that is simulated: what its file says of GPUs, links, interfaces and switches. Only the simulator
// (executor/sim) may read these parameters; everyone else learns of the cluster by measuring it.
//
// Seconds, bytes, flops, and per second. Values only; trustworthy once ValidateSimulatedCluster has passed them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/status.h"

namespace moeplan {

struct SimulatedGpu {
  double peak_flops_per_s = 0;
  double gemm_efficiency = 0;     // Share of the peak that large GEMMs reach; above 0, at most 1.
  double memory_bytes_per_s = 0;  // Reads and writes together.
  double device_memory_bytes = 0;
  double launch_s = 0;  // Of a kernel or a collective.

  friend bool operator==(const SimulatedGpu&, const SimulatedGpu&) = default;
};

// What joins the GPUs of a node:
//   kSharedBus  PCIe through a host bridge. All GPUs of a node share `bytes_per_s` towards the bridge and, as PCIe is
//               full duplex, as much again away from it. A transfer between GPUs of the node takes both ways; one to
//               another node takes the way to the bridge here and the way from it there.
//   kSwitched   Each GPU has a port of `bytes_per_s` in and out, as with NVSwitch.
//   kMesh       Each pair of GPUs has `bytes_per_s` each way.
// With the last two, traffic to the interface does not take these links.
enum class GpuLinkKind { kSharedBus, kSwitched, kMesh };
inline constexpr int kGpuLinkKinds = 3;

struct SimulatedGpuLink {
  GpuLinkKind kind = GpuLinkKind::kSharedBus;
  double bytes_per_s = 0;
  double latency_s = 0;  // Of a transfer inside a node; on a shared bus also of each way to or from the interface.

  friend bool operator==(const SimulatedGpuLink&, const SimulatedGpuLink&) = default;
};

// The network interfaces of a node. Those of a node serve equal runs of its GPUs: the i-th of g GPUs has number
// i·interfaces/g; with more interfaces than GPUs, each GPU has an equal share of them all.
struct SimulatedNic {
  int per_node = 1;  // Means nothing with per_gpu.
  bool per_gpu = false;
  double bytes_per_s = 0;  // Of one interface, each way.
  double latency_s = 0;    // Of a message from interface to interface below one leaf switch.

  friend bool operator==(const SimulatedNic&, const SimulatedNic&) = default;
};

struct SimulatedSwitch {
  int nodes_per_leaf = 0;  // 0: all below one leaf switch.
  // What the interfaces below a leaf can send, over what the leaf can send up; the same down.
  double oversubscription = 1;
  double latency_s = 0;  // What a message between leaves takes beyond one below a leaf.

  friend bool operator==(const SimulatedSwitch&, const SimulatedSwitch&) = default;
};

// A GPU whose kernels take `slowdown` times as long.
struct Straggler {
  int gpu = 0;  // The rank that it serves.
  double slowdown = 1;

  friend bool operator==(const Straggler&, const Straggler&) = default;
};

// What makes runs differ: the time of each kernel, and the bytes of each group operation or transfer, are multiplied by
// exp(σ·z), z drawn from the standard normal distribution. The same seed gives the same run.
struct SimulatedNoise {
  double compute_sigma = 0;
  double transfer_sigma = 0;
  std::vector<Straggler> stragglers;
  int seed = 0;

  friend bool operator==(const SimulatedNoise&, const SimulatedNoise&) = default;
};

struct SimulatedCluster {
  std::string name;
  int nodes = 1;
  int gpus_per_node = 1;
  SimulatedGpu gpu;
  SimulatedGpuLink gpu_link;
  SimulatedNic nic;
  SimulatedSwitch leaf_switch;
  SimulatedNoise noise;

  friend bool operator==(const SimulatedCluster&, const SimulatedCluster&) = default;
};

// The error names the field by its JSON path within the file.
Status ValidateSimulatedCluster(const SimulatedCluster& cluster);

inline int Gpus(const SimulatedCluster& cluster) { return cluster.nodes * cluster.gpus_per_node; }

// The most that one GPU can send one way: over the links inside its node (with kSharedBus all of the bus, with kMesh
// those to all others), and over its share of the node's interfaces while the GPUs that share one send alike (of GPUs
// whose shares differ, the largest). 0 where that is not sure: a node of one GPU has no links, one node no network, and
// noise may have transfers take clearly less than their bytes do.
double NodeLinkBytesPerS(const SimulatedCluster& cluster);
double NetworkBytesPerS(const SimulatedCluster& cluster);

// The names of the contract, such as "SHARED_BUS".
std::string_view Name(GpuLinkKind kind);

}  // namespace moeplan
