#include "models/cluster/simulated_cluster.h"

#include <gtest/gtest.h>

namespace moeplan {
namespace {

SimulatedCluster Of(int gpus_per_node, const SimulatedNic& nic) {
  return {.nodes = 2, .gpus_per_node = gpus_per_node, .gpu_link = {.bytes_per_s = 3e10}, .nic = nic};
}

TEST(SimulatedClusterTest, AGpuHasABusOrAPortOrALinkToEachOther) {
  SimulatedCluster cluster = Of(4, {.bytes_per_s = 1e10});
  cluster.gpu_link.kind = GpuLinkKind::kSharedBus;
  EXPECT_EQ(NodeLinkBytesPerS(cluster), 3e10);
  cluster.gpu_link.kind = GpuLinkKind::kSwitched;
  EXPECT_EQ(NodeLinkBytesPerS(cluster), 3e10);
  cluster.gpu_link.kind = GpuLinkKind::kMesh;
  EXPECT_EQ(NodeLinkBytesPerS(cluster), 9e10);
}

TEST(SimulatedClusterTest, GpusOfANodeShareItsInterfaces) {
  EXPECT_EQ(NetworkBytesPerS(Of(4, {.per_gpu = true, .bytes_per_s = 1e10})), 1e10);
  EXPECT_EQ(NetworkBytesPerS(Of(4, {.per_node = 1, .bytes_per_s = 1e10})), 2.5e9);
  EXPECT_EQ(NetworkBytesPerS(Of(4, {.per_node = 2, .bytes_per_s = 1e10})), 5e9);
  EXPECT_EQ(NetworkBytesPerS(Of(4, {.per_node = 8, .bytes_per_s = 1e10})), 2e10);
  // Four GPUs are on three interfaces: two share one, and two have one each.
  EXPECT_EQ(NetworkBytesPerS(Of(4, {.per_node = 3, .bytes_per_s = 1e10})), 1e10);
}

TEST(SimulatedClusterTest, WhatIsNotThereOrNotSureIsNotKnown) {
  SimulatedCluster cluster = Of(1, {.bytes_per_s = 1e10});
  EXPECT_EQ(NodeLinkBytesPerS(cluster), 0);
  EXPECT_EQ(NetworkBytesPerS(cluster), 1e10);
  cluster.nodes = 1;
  EXPECT_EQ(NetworkBytesPerS(cluster), 0);
  cluster = Of(4, {.bytes_per_s = 1e10});
  cluster.noise.transfer_sigma = 0.01;
  EXPECT_EQ(NodeLinkBytesPerS(cluster), 3e10);
  cluster.noise.transfer_sigma = 0.1;
  EXPECT_EQ(NodeLinkBytesPerS(cluster), 0);
  EXPECT_EQ(NetworkBytesPerS(cluster), 0);
}

}  // namespace
}  // namespace moeplan
