// What simulating takes, in wall time: all-to-alls of 32 and of 1,024 GPUs.
//
//   build/bin/sim_bench
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "executor/sim/network.h"

namespace moeplan {
namespace {

SimulatedCluster ClusterOf(int nodes, int gpus_per_node, GpuLinkKind kind) {
  return {.nodes = nodes,
          .gpus_per_node = gpus_per_node,
          .gpu = {.peak_flops_per_s = 1e14,
                  .gemm_efficiency = 0.7,
                  .memory_bytes_per_s = 2e12,
                  .device_memory_bytes = 8e10,
                  .launch_s = 5e-6},
          .gpu_link = {.kind = kind, .bytes_per_s = 2e11, .latency_s = 3e-6},
          .nic = {.per_gpu = kind != GpuLinkKind::kSharedBus, .bytes_per_s = 2.5e10, .latency_s = 4e-6},
          .leaf_switch = {.nodes_per_leaf = nodes > 16 ? 16 : 0}};
}

double WallS() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// SimGrid simulates one cluster a process.
void InChild(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    body();
    std::fflush(nullptr);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
}

void TimeAllToAll(const SimulatedCluster& cluster, size_t exact_transfers) {
  InChild([&] {
    const auto network = Network::Make(cluster, {.exact_transfers = exact_transfers});
    if (!network.ok()) return std::puts(network.status().message().c_str()), void();
    std::vector<Traffic> transfers;
    for (int from = 0; from < Gpus(cluster); ++from) {
      for (int to = 0; to < Gpus(cluster); ++to) {
        if (from != to) transfers.push_back({from, to, 1e5});
      }
    }
    constexpr int kRuns = 5;
    const double begin_s = WallS();
    for (int run = 0; run < kRuns; ++run) {
      (*network)->Exchange(transfers, std::nullopt, [] {});
      while ((*network)->PlayNext()) {
      }
    }
    const bool exact = transfers.size() <= exact_transfers;
    std::printf("all-to-all of %d GPUs, %s, %s: %.2f ms of wall time\n", Gpus(cluster),
                std::string(Name(cluster.gpu_link.kind)).c_str(), exact ? "a flow for each transfer" : "sums of ends",
                (WallS() - begin_s) / kRuns * 1e3);
  });
}

}  // namespace
}  // namespace moeplan

int main() {
  using namespace moeplan;
  for (const GpuLinkKind kind : {GpuLinkKind::kSharedBus, GpuLinkKind::kSwitched, GpuLinkKind::kMesh}) {
    TimeAllToAll(ClusterOf(8, 4, kind), 1000);
    TimeAllToAll(ClusterOf(8, 4, kind), 0);
    TimeAllToAll(ClusterOf(128, 8, kind), NetworkOptions().exact_transfers);
  }
}
