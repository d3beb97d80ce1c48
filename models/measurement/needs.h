// What has to be measured before plans can be made: every cost that pricing the candidates and answering the rules will
// look up.
//
// Pure and deterministic.
#pragma once

#include <vector>

#include "models/cost/operation.h"


namespace moeplan {

// One measurement worth taking: `key`, contended or not, at `size` bytes or flops. A kernel key without model_dim and
// hidden_dim leaves the shape to whoever measures.
struct Need {
  CostKey key;        // Essential.
  double size = 0;    // Above 0.
  double weight = 0;  // How much hangs on it, to be compared within one list: more is worth measuring earlier.

  friend bool operator==(const Need&, const Need&) = default;
};

// Everything that pricing all candidates of the workloads (chunk counts in powers of two) and their rules ask, by
// ascending key and size, each once. Contended keys are there for operations that may meet in some candidate, and for
// every collective (all-to-alls: DIRECT) beside the expert GEMM and the GEMM beside them. Groups of one rank are not.
// A weight is the time that depends on the measurement, summed over its uses (NominalS); contended measurements count a
// quarter of their time, those of compute beside communication a twentieth.
// Requires workloads resolved against `cluster`.
std::vector<Need> NeedsOf(const std::vector<Workload>& resolved, const Cluster& cluster);

// Whether a kernel of that key has the shapes, and the kind of expert, of the resolved workload's layer or of its
// shared expert; fields that the key leaves open fit all.
bool IsKernelOf(const KernelKey& key, const Workload& resolved);

// A resolved workload for each legal layout of the cluster with TP and ESP dividing the GPUs of a node and EP = ranks /
// ESP, named "tp2-esp1-ep8", over a small layer of one expert for each EP rank.
std::vector<Workload> DefaultWorkloads(const Cluster& cluster);

// The messages that plans of usual layers ask for.
inline constexpr double kLeastPlannedBytes = 1024, kMostPlannedBytes = 67108864;

struct SizeRange {
  double low = 0, high = 0;  // Bytes or flops, as UnitOf says.
};

// The sizes of such a key between `low_bytes` and `high_bytes`: bytes as they are; flops as NeedsOfLayouts says.
SizeRange PlannedSizes(const CostKey& key, const Cluster& cluster, double low_bytes = kLeastPlannedBytes,
                       double high_bytes = kMostPlannedBytes);

// Seconds at nominal speeds, in place of those that are not known yet: 10 GB/s between nodes, 100 inside, 1 TB/s in
// memory, the cluster's peak flops or 100 Tflop/s, 10 µs to start.
double NominalS(const CostKey& key, double size, const Cluster& cluster);

// A key, the sizes that are worth measuring, ascending, and how much hangs on it, to be compared within one list.
struct KeySizes {
  CostKey key;
  std::vector<double> sizes;
  double weight = 0;
  int delay = 0;  // In rounds.
};
// Most useful first: both ends of every key, then the middles, and so on halving; a key that is delayed comes as many
// rounds later. Weights of several lists can be compared: a round is a factor of two.
std::vector<Need> EndsFirst(const std::vector<KeySizes>& keys);

// Both lists, each need once, most useful first.
std::vector<Need> MergedNeeds(const std::vector<Need>& one, const std::vector<Need>& other);

// The keys that DefaultWorkloads need, any element size and dimensions, each over a grid of sizes: bytes by powers of
// four from `low_bytes` to `high_bytes`, both included; for EXPERT_GEMM the flops that 1024 × 1024 BF16 experts of two
// matrices spend on rows of that many bytes, up to 20 ms at the cluster's peak (or 17 Gflop where that is unknown).
// Most useful first: both ends of every key, then the middles, and so on halving; contended keys come two rounds later,
// all-to-all algorithms other than DIRECT one round.
std::vector<Need> NeedsOfLayouts(const Cluster& cluster, double low_bytes = kLeastPlannedBytes,
                                 double high_bytes = kMostPlannedBytes);

}  // namespace moeplan
