// What simulating takes, in wall time: all-to-alls and layers on 32 and on 1,024 GPUs.
//
//   build/bin/sim_bench
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "executor/sim/network.h"
#include "executor/sim/sim_world.h"
#include "tests/executor/sim_layer.h"

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
    const auto network = executor::Network::Make(cluster, {.exact_transfers = exact_transfers});
    if (!network.ok()) return std::puts(network.status().message().c_str()), void();
    std::vector<executor::Traffic> transfers;
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

// A training layer of one expert for each GPU of an EP group, one run after another.
void TimeLayer(const SimulatedCluster& simulated, int expert_parallel, const Knobs& knobs, int runs) {
  const Cluster cluster = {.nodes = simulated.nodes, .gpus_per_node = simulated.gpus_per_node};
  const Workload workload = {.layer = {.batch = 4,
                                       .sequence_length = 2048,
                                       .model_dim = 4096,
                                       .hidden_dim = 14336,
                                       .experts = expert_parallel,
                                       .top_k = 2,
                                       .capacity_factor = 1.2},
                             .layout = {.expert_parallel = expert_parallel},
                             .phase = Phase::kTraining};
  InChild([&] {
    const auto network = executor::Network::Make(simulated);
    const auto world = executor::SimWorld::Make(**network, {.data = false});
    const auto resolved = ResolveWorkload(workload, cluster);
    if (!resolved.ok()) return std::puts(resolved.status().message().c_str()), void();
    double time_s = 0, begin_s = WallS(), first_s = 0;
    testing::SimLayer layer = {.workload = *resolved, .knobs = knobs, .runs = runs};
    const Status status = testing::RunLayer(
        **world, layer, cluster,
        [&](int rank, executor::Device&, executor::GraphRunner& runner) {
          if (rank > 0) return;
          const Timeline timeline = runner.LastTimeline(Phase::kTraining);
          for (const TaskTiming& task : timeline) time_s = std::max(time_s, task.end_s - timeline[0].start_s);
        },
        [&](int run) {
          if (run == 0) first_s = WallS();
        });
    if (!status.ok()) return std::puts(status.message().c_str()), void();
    std::printf(
        "layer on %d GPUs, EP %d, %s, r = %d: %.3f ms of simulated time; wall time: %.1f ms to prepare and run "
        "once, %.1f ms for each further run\n",
        Gpus(simulated), expert_parallel, std::string(Name(simulated.gpu_link.kind)).c_str(), knobs.partition_degree,
        time_s * 1e3, (first_s - begin_s) * 1e3, (WallS() - first_s) / (runs - 1) * 1e3);
  });
}

}  // namespace
}  // namespace moeplan

int main() {
  using namespace moeplan;
  for (const GpuLinkKind kind : {GpuLinkKind::kSharedBus, GpuLinkKind::kSwitched, GpuLinkKind::kMesh}) {
    TimeAllToAll(ClusterOf(8, 4, kind), 1000);
    TimeAllToAll(ClusterOf(8, 4, kind), 0);
    TimeAllToAll(ClusterOf(128, 8, kind), executor::NetworkOptions().exact_transfers);
  }
  for (const GpuLinkKind kind : {GpuLinkKind::kSharedBus, GpuLinkKind::kSwitched}) {
    for (const int partition_degree : {1, 4}) {
      const Knobs knobs = {.family = Family::kPipeline, .partition_degree = partition_degree};
      for (const int expert_parallel : {8, 32}) TimeLayer(ClusterOf(8, 4, kind), expert_parallel, knobs, 11);
      for (const int expert_parallel : {8, 64, 1024}) TimeLayer(ClusterOf(128, 8, kind), expert_parallel, knobs, 2);
    }
  }
}
