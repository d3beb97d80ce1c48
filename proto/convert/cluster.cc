#include "proto/convert/cluster.h"

namespace moeplan {

StatusOr<Cluster> ClusterFromProto(const v1::Cluster& message, std::string_view path) {
  const Cluster cluster = {.nodes = message.nodes(),
                           .gpus_per_node = message.gpus_per_node(),
                           .peak_flops_per_s = message.peak_flops_per_s(),
                           .device_memory_bytes = message.device_memory_bytes(),
                           .node_link_bytes_per_s = message.node_link_bytes_per_s(),
                           .network_bytes_per_s = message.network_bytes_per_s()};
  RETURN_IF_ERROR(ValidateCluster(cluster, std::string(path)));
  return cluster;
}

v1::Cluster ToProto(const Cluster& cluster) {
  v1::Cluster message;
  message.set_nodes(cluster.nodes);
  message.set_gpus_per_node(cluster.gpus_per_node);
  message.set_peak_flops_per_s(cluster.peak_flops_per_s);
  message.set_device_memory_bytes(cluster.device_memory_bytes);
  message.set_node_link_bytes_per_s(cluster.node_link_bytes_per_s);
  message.set_network_bytes_per_s(cluster.network_bytes_per_s);
  return message;
}

}  // namespace moeplan
