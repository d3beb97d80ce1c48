// A simulated cluster as SimGrid plays it: what transfers and kernels of its GPUs take when they share links, memory
// and processors.
//
// Sharing. Every transfer is a flow along the links of its path; rates are max-min fair, with no artefacts of TCP. A
// path begins and ends in the memory of a GPU, whose bandwidth kernels share:
//
//   inside a node      SHARED_BUS: the bus up and down; SWITCHED: the ports out and in; MESH: the link of the pair
//   between nodes      SHARED_BUS: the bus up; the interface out; between leaves: up and down; the interface in;
//                      SHARED_BUS: the bus down
//   a copy on a GPU    its memory alone, twice the bytes
//
// Latencies (models/cluster/simulated_cluster.h) pass before a flow begins; they do not slow it down.
//
// Group operations. An Exchange of up to `exact_transfers` transfers has a flow for each of them, which is exact, but
// where all are of one size and every GPU of the cluster may have as many, more than `exact_transfers_of_all` together:
// sibling groups exchange at the same time. Else it has, for each GPU and each reach (own node, own leaf, beyond), one
// flow of all that it sends there and one of all that it receives from there, each with a share of the links in
// proportion to its bytes; with MESH, transfers inside a node stay their own. Every link carries what it did, but who
// sends no longer waits for who receives: exact where all GPUs exchange the same, and within 2 % in a group of 32 GPUs
// where each transfer has between half the mean bytes and one and a half times as many.
//
// Noise is that of the cluster's file, drawn in the order of calls. The same calls give the same times, always.
//
// SimGrid's engine is one for a process: Make answers kUnavailable the second time; to simulate several clusters, fork.
// One thread, always the same.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "executor/virtual/agenda.h"
#include "models/cluster/simulated_cluster.h"
#include "models/status.h"

namespace moeplan::executor {

// Between GPUs, or, where both are the same, within one.
struct Traffic {
  int from = 0, to = 0;
  double bytes = 0;
};

// What a kernel asks of its GPU.
struct GpuWork {
  double compute_s = 0;  // Of the whole processor.
  double memory_bytes = 0;
};

struct NetworkOptions {
  size_t exact_transfers = 256;
  size_t exact_transfers_of_all = 2048;
};

class Network : public Agenda {
 public:
  static StatusOr<std::unique_ptr<Network>> Make(const SimulatedCluster& cluster, const NetworkOptions& options = {});

  virtual const SimulatedCluster& cluster() const = 0;

  // `done` is called, once, when the last of `transfers` has arrived. `latency_s`: what passes before any of them
  // begins; absent: of each its own.
  virtual void Exchange(std::span<const Traffic> transfers, std::optional<double> latency_s, Action done) = 0;
  // `done` is called when the processor and the memory have both given what `work` asks of them.
  virtual void Work(int gpu, const GpuWork& work, Action done) = 0;

  // Of a transfer, beyond what its bytes take.
  virtual double LatencyS(int from, int to) const = 0;
};

}  // namespace moeplan::executor
