#include "proto/convert/simulated_cluster.h"

#include "proto/convert/enums.h"
#include "proto/errors.h"

namespace moeplan {
namespace {

using v1Cluster = v1::SimulatedCluster;

SimulatedNoise NoiseFromProto(const v1Cluster::Noise& message) {
  SimulatedNoise noise = {
      .compute_sigma = message.compute_sigma(), .transfer_sigma = message.transfer_sigma(), .seed = message.seed()};
  for (const auto& straggler : message.stragglers()) {
    noise.stragglers.push_back({.gpu = straggler.gpu(), .slowdown = straggler.slowdown()});
  }
  return noise;
}

v1Cluster::Noise ToProto(const SimulatedNoise& noise) {
  v1Cluster::Noise message;
  message.set_compute_sigma(noise.compute_sigma);
  message.set_transfer_sigma(noise.transfer_sigma);
  message.set_seed(noise.seed);
  for (const Straggler& straggler : noise.stragglers) {
    auto& added = *message.add_stragglers();
    added.set_gpu(straggler.gpu);
    added.set_slowdown(straggler.slowdown);
  }
  return message;
}

}  // namespace

StatusOr<SimulatedCluster> SimulatedClusterFromProto(const v1Cluster& message) {
  const auto& gpu = message.gpu();
  const auto& nic = message.nic();
  const auto& leaf_switch = message.switch_();
  if (nic.per_gpu() && nic.has_per_node()) {
    return error::Mismatch("nic.perNode", StrCat(nic.per_node()), "nothing beside nic.perGpu true");
  }
  SimulatedCluster cluster = {
      .name = message.name(),
      .nodes = message.nodes(),
      .gpus_per_node = message.gpus_per_node(),
      .gpu = {.peak_flops_per_s = gpu.peak_flops_per_s(),
              .gemm_efficiency = gpu.gemm_efficiency(),
              .memory_bytes_per_s = gpu.memory_bytes_per_s(),
              .device_memory_bytes = gpu.device_memory_bytes(),
              .launch_s = gpu.launch_s()},
      .nic = {.per_node = nic.has_per_node() ? nic.per_node() : 1,
              .per_gpu = nic.per_gpu(),
              .bytes_per_s = nic.bytes_per_s(),
              .latency_s = nic.latency_s()},
      .leaf_switch = {.nodes_per_leaf = leaf_switch.nodes_per_leaf(),
                      .oversubscription = leaf_switch.has_oversubscription() ? leaf_switch.oversubscription() : 1,
                      .latency_s = leaf_switch.latency_s()},
      .noise = NoiseFromProto(message.noise())};
  ASSIGN_OR_RETURN(cluster.gpu_link.kind, EnumFromProto<GpuLinkKind>(message.gpu_link().kind(), "gpuLink.kind"));
  cluster.gpu_link.bytes_per_s = message.gpu_link().bytes_per_s();
  cluster.gpu_link.latency_s = message.gpu_link().latency_s();
  RETURN_IF_ERROR(ValidateSimulatedCluster(cluster));
  return cluster;
}

v1Cluster ToProto(const SimulatedCluster& cluster) {
  v1Cluster message;
  message.set_name(cluster.name);
  message.set_nodes(cluster.nodes);
  message.set_gpus_per_node(cluster.gpus_per_node);
  auto& gpu = *message.mutable_gpu();
  gpu.set_peak_flops_per_s(cluster.gpu.peak_flops_per_s);
  gpu.set_gemm_efficiency(cluster.gpu.gemm_efficiency);
  gpu.set_memory_bytes_per_s(cluster.gpu.memory_bytes_per_s);
  gpu.set_device_memory_bytes(cluster.gpu.device_memory_bytes);
  gpu.set_launch_s(cluster.gpu.launch_s);
  auto& gpu_link = *message.mutable_gpu_link();
  gpu_link.set_kind(EnumToProto<v1Cluster::GpuLink::Kind>(cluster.gpu_link.kind));
  gpu_link.set_bytes_per_s(cluster.gpu_link.bytes_per_s);
  gpu_link.set_latency_s(cluster.gpu_link.latency_s);
  auto& nic = *message.mutable_nic();
  if (!cluster.nic.per_gpu) nic.set_per_node(cluster.nic.per_node);
  nic.set_per_gpu(cluster.nic.per_gpu);
  nic.set_bytes_per_s(cluster.nic.bytes_per_s);
  nic.set_latency_s(cluster.nic.latency_s);
  auto& leaf_switch = *message.mutable_switch_();
  leaf_switch.set_nodes_per_leaf(cluster.leaf_switch.nodes_per_leaf);
  leaf_switch.set_oversubscription(cluster.leaf_switch.oversubscription);
  leaf_switch.set_latency_s(cluster.leaf_switch.latency_s);
  if (cluster.noise != SimulatedNoise{}) *message.mutable_noise() = ToProto(cluster.noise);
  return message;
}

}  // namespace moeplan
