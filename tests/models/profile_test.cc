#include "models/cost/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/fit/peak_flops.h"

namespace moeplan {
namespace {

constexpr CollectiveKey kAllToAll = {.collective = Collective::kAllToAll, .group = {8, 8}};
constexpr KernelKey kNorm = {.kernel = Kernel::kNorm};

Profile Named() {
  Profile named = {.cluster = {.nodes = 4,
                               .gpus_per_node = 8,
                               .peak_flops_per_s = 9e14,
                               .device_memory_bytes = 8e10,
                               .node_link_bytes_per_s = 4.5e11,
                               .network_bytes_per_s = 5e10}};
  named.collectives.push_back({kAllToAll, MakeCostModel(AlphaBeta{1e-5, 1e-11})});
  named.kernels.push_back({kNorm, MakeCostModel(AlphaBeta{1e-6, 1e-12})});
  named.roofline = Roofline{.flops_per_s = 7e14};
  return named;
}

TEST(CompleteFromTest, WhatWasMeasuredStaysAndTheRestIsAdded) {
  Profile measured = {
      .cluster = {.nodes = 2, .gpus_per_node = 8, .peak_flops_per_s = 6e14, .network_bytes_per_s = 2.5e10}};
  const CollectiveKey all_gather = {.collective = Collective::kAllGather, .group = {8, 8}};
  measured.collectives.push_back({all_gather, MakeCostModel(AlphaBeta{2e-5, 2e-11})});
  measured.kernels.push_back({kNorm, MakeCostModel(AlphaBeta{3e-6, 3e-12})});
  CompleteFrom(Named(), measured);
  EXPECT_EQ(measured.collectives.size(), 2u);
  ASSERT_EQ(measured.kernels.size(), 1u);
  EXPECT_EQ(std::get<AlphaBeta>(measured.kernels[0].model.curve).alpha_s, 3e-6);
  EXPECT_EQ(measured.roofline->flops_per_s, 7e14);
  EXPECT_EQ(measured.cluster.nodes, 2);
  EXPECT_EQ(measured.cluster.peak_flops_per_s, 6e14);
  EXPECT_EQ(measured.cluster.device_memory_bytes, 8e10);
  EXPECT_EQ(measured.cluster.node_link_bytes_per_s, 4.5e11);
  EXPECT_EQ(measured.cluster.network_bytes_per_s, 2.5e10);
}

// One card was measured, and its profile completes what is known of a cluster of such cards.
TEST(CompleteFromTest, KernelsOfOneRankAreThoseOfTheOthersNodes) {
  Profile measured = {.cluster = {.nodes = 1, .gpus_per_node = 1, .peak_flops_per_s = 6e14}};
  measured.kernels.push_back({kNorm, MakeCostModel(AlphaBeta{3e-6, 3e-12})});
  CompleteFrom(Named(), measured);
  EXPECT_EQ(measured.cluster.nodes, 4);
  EXPECT_EQ(measured.cluster.gpus_per_node, 8);
  EXPECT_EQ(measured.collectives.size(), 1u);
  Profile of_several = {.cluster = {.nodes = 2, .gpus_per_node = 8}};
  CompleteFrom(Named(), of_several);
  EXPECT_EQ(of_several.cluster.nodes, 2);
  EXPECT_EQ(std::get<AlphaBeta>(measured.kernels[0].model.curve).alpha_s, 3e-6);
}

TEST(FastestGemmTest, LinearLayersCountButForFp8AndGradients) {
  const auto sample = [](KernelKey key, double flops, double time_s) {
    return Sample{.key = key, .size = flops, .times_s = {time_s}};
  };
  EXPECT_EQ(FastestGemmFlopsPerS({}), 0);
  const std::vector<Sample> samples = {
      sample({.kernel = Kernel::kExpertGemm, .bytes_per_element = 2}, 1e9, 1e-5),
      sample({.kernel = Kernel::kLinear, .bytes_per_element = 2}, 6e12, 1e-2),
      sample({.kernel = Kernel::kLinear, .bytes_per_element = 1}, 6e12, 5e-3),
      sample({.kernel = Kernel::kLinearWeightGradient, .bytes_per_element = 2}, 6e12, 1e-3),
  };
  EXPECT_EQ(FastestGemmFlopsPerS(samples), 6e14);
}

TEST(StatusOrTest, TheValueOfAnErrorIsNotThere) {
  const StatusOr<std::string> wrong = InvalidInput("why");
  EXPECT_DEATH((void)wrong->size(), "check failed");
  EXPECT_DEATH((void)*wrong, "check failed");
  StatusOr<std::string> right = std::string("value");
  EXPECT_EQ(*right, "value");
  EXPECT_EQ(*std::move(right), "value");
}

}  // namespace
}  // namespace moeplan
