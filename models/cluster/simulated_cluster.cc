#include "models/cluster/simulated_cluster.h"

#include <cmath>
#include <cstdint>

#include "models/text.h"

namespace moeplan {
namespace {

// A platform of SimGrid keeps some links and hosts for each, and a job a thread and a stream.
constexpr int kMostGpus = 4096;
// Far beyond machines both ways: what is no rate or time of any is a slip of the pen, and may never end.
constexpr double kLeastRate = 1, kMostRate = 1e21, kLongestS = 3600, kMostRatio = 1e6;
constexpr double kMostSigma = 1;
// One transfer of a hundred thousand takes less than exp(-4.3 sigma) of its time: at this sigma 5 % less, the slack
// that peaks have (models/cost/plausible.h).
constexpr double kSureSigma = 0.0114;

Status Bad(const std::string& path, const std::string& found, const std::string& expected) {
  return InvalidInput(StrCat(path, ": found ", found, ", expected ", expected));
}

Status Within(const std::string& path, double value, double least, double most) {
  if (least <= value && value <= most) return OkStatus();
  return Bad(path, StrCat(value), StrCat("a number from ", least, " to ", most));
}

Status Rate(const std::string& path, double value) { return Within(path, value, kLeastRate, kMostRate); }
Status Latency(const std::string& path, double value) { return Within(path, value, 0, kLongestS); }

Status CountAtLeast(const std::string& path, int value, int least) {
  if (value >= least) return OkStatus();
  return Bad(path, StrCat(value), StrCat("a whole number of at least ", least));
}

Status CheckGpu(const SimulatedGpu& gpu) {
  RETURN_IF_ERROR(Rate("gpu.peakFlopsPerS", gpu.peak_flops_per_s));
  if (!(gpu.gemm_efficiency > 0 && gpu.gemm_efficiency <= 1)) {
    return Bad("gpu.gemmEfficiency", StrCat(gpu.gemm_efficiency), "a number above 0, at most 1");
  }
  RETURN_IF_ERROR(Rate("gpu.memoryBytesPerS", gpu.memory_bytes_per_s));
  RETURN_IF_ERROR(Rate("gpu.deviceMemoryBytes", gpu.device_memory_bytes));
  return Latency("gpu.launchS", gpu.launch_s);
}

Status CheckSigma(const std::string& path, double sigma) {
  if (sigma >= 0 && sigma <= kMostSigma) return OkStatus();
  return Bad(path, StrCat(sigma), StrCat("a number from 0 to ", kMostSigma));
}

Status CheckNoise(const SimulatedNoise& noise, int gpus) {
  RETURN_IF_ERROR(CheckSigma("noise.computeSigma", noise.compute_sigma));
  RETURN_IF_ERROR(CheckSigma("noise.transferSigma", noise.transfer_sigma));
  RETURN_IF_ERROR(CountAtLeast("noise.seed", noise.seed, 0));
  for (size_t i = 0; i < noise.stragglers.size(); ++i) {
    const std::string path = StrCat("noise.stragglers[", i, "]");
    const Straggler& straggler = noise.stragglers[i];
    if (straggler.gpu < 0 || straggler.gpu >= gpus) {
      return Bad(path + ".gpu", StrCat(straggler.gpu), StrCat("a GPU from 0 to ", gpus - 1));
    }
    RETURN_IF_ERROR(Within(path + ".slowdown", straggler.slowdown, 1, kMostRatio));
  }
  return OkStatus();
}

bool OutrunsItsLinks(const SimulatedNoise& noise) { return noise.transfer_sigma > kSureSigma; }

}  // namespace

Status ValidateSimulatedCluster(const SimulatedCluster& cluster) {
  RETURN_IF_ERROR(CountAtLeast("nodes", cluster.nodes, 1));
  RETURN_IF_ERROR(CountAtLeast("gpusPerNode", cluster.gpus_per_node, 1));
  if (static_cast<int64_t>(cluster.nodes) * cluster.gpus_per_node > kMostGpus) {
    return Bad("nodes and gpusPerNode", StrCat(cluster.nodes, " and ", cluster.gpus_per_node),
               StrCat("at most ", kMostGpus, " GPUs in all"));
  }
  RETURN_IF_ERROR(CheckGpu(cluster.gpu));
  RETURN_IF_ERROR(Rate("gpuLink.bytesPerS", cluster.gpu_link.bytes_per_s));
  RETURN_IF_ERROR(Latency("gpuLink.latencyS", cluster.gpu_link.latency_s));
  if (!cluster.nic.per_gpu) RETURN_IF_ERROR(CountAtLeast("nic.perNode", cluster.nic.per_node, 1));
  RETURN_IF_ERROR(Rate("nic.bytesPerS", cluster.nic.bytes_per_s));
  RETURN_IF_ERROR(Latency("nic.latencyS", cluster.nic.latency_s));
  RETURN_IF_ERROR(CountAtLeast("switch.nodesPerLeaf", cluster.leaf_switch.nodes_per_leaf, 0));
  RETURN_IF_ERROR(Within("switch.oversubscription", cluster.leaf_switch.oversubscription, 1, kMostRatio));
  RETURN_IF_ERROR(Latency("switch.latencyS", cluster.leaf_switch.latency_s));
  return CheckNoise(cluster.noise, Gpus(cluster));
}

double NodeLinkBytesPerS(const SimulatedCluster& cluster) {
  if (cluster.gpus_per_node == 1 || OutrunsItsLinks(cluster.noise)) return 0;
  const int links = cluster.gpu_link.kind == GpuLinkKind::kMesh ? cluster.gpus_per_node - 1 : 1;
  return links * cluster.gpu_link.bytes_per_s;
}

double NetworkBytesPerS(const SimulatedCluster& cluster) {
  if (cluster.nodes == 1 || OutrunsItsLinks(cluster.noise)) return 0;
  const int gpus = cluster.gpus_per_node, nics = cluster.nic.per_gpu ? gpus : cluster.nic.per_node;
  if (nics >= gpus) return cluster.nic.bytes_per_s * nics / gpus;
  const int fewest_on_one = gpus / nics;
  return cluster.nic.bytes_per_s / fewest_on_one;
}

std::string_view Name(GpuLinkKind kind) {
  switch (kind) {
    case GpuLinkKind::kSharedBus: return "SHARED_BUS";
    case GpuLinkKind::kSwitched: return "SWITCHED";
    case GpuLinkKind::kMesh: return "MESH";
  }
  return "?";
}

}  // namespace moeplan
