#include <gtest/gtest.h>

#include <limits>

#include "models/workload/codec.h"
#include "models/workload/groups.h"
#include "models/workload/workload.h"

namespace moeplan {
namespace {

Workload EightByTwo() {
  Workload workload;
  workload.layer = {.batch = 1,
                    .sequence_length = 64,
                    .model_dim = 8,
                    .hidden_dim = 16,
                    .experts = 4,
                    .top_k = 2,
                    .capacity_factor = 1.0};
  workload.layout = {.tensor_parallel = 2, .expert_parallel = 4, .expert_sharding_parallel = 2};
  return workload;
}
constexpr Cluster kTwoNodesOfEight = {.nodes = 2, .gpus_per_node = 8};

TEST(WorkloadTest, DataParallelFillsTheRanks) {
  const auto resolved = ResolveWorkload(EightByTwo(), kTwoNodesOfEight);
  ASSERT_TRUE(resolved.ok()) << resolved.status().message();
  EXPECT_EQ(resolved->layout.data_parallel, 8);  // 16 ranks / TP 2.
}

TEST(WorkloadTest, ErrorsNameTheFieldWhatWasFoundAndWhatWasExpected) {
  Workload workload = EightByTwo();
  workload.layer.top_k = 5;
  EXPECT_EQ(ResolveWorkload(workload, kTwoNodesOfEight).status().message(),
            "layer.topK: found 5, expected at most layer.experts, which is 4");
  workload = EightByTwo();
  workload.layout.expert_parallel = 3;
  EXPECT_EQ(ResolveWorkload(workload, kTwoNodesOfEight).status().code(), StatusCode::kInvalidInput);
}

TEST(WorkloadTest, EveryMpRankHasColumnsOfTheSharedExpert) {
  Workload workload = EightByTwo();  // TP 2.
  const auto message = [&](int hidden) {
    workload.layer.shared_hidden_dim = hidden;
    return ResolveWorkload(workload, kTwoNodesOfEight).status().message();
  };
  EXPECT_EQ(message(0), "");
  EXPECT_EQ(message(2), "");
  EXPECT_EQ(message(1), "layer.sharedHiddenDim: found 1, expected 0 or at least layout.tensorParallel, which is 2");
  EXPECT_EQ(message(-1), "layer.sharedHiddenDim: found -1, expected a whole number of at least 0");
}

TEST(WorkloadTest, CoefficientsOfTheRoutersLossesAreFiniteAndNotNegative) {
  Workload workload = EightByTwo();
  const auto message = [&] { return ResolveWorkload(workload, kTwoNodesOfEight).status().message(); };
  workload.layer.aux_loss_coefficient = 0.01;
  workload.layer.z_loss_coefficient = 0.001;
  EXPECT_EQ(message(), "");
  workload.layer.z_loss_coefficient = -1;
  EXPECT_EQ(message(), "layer.zLossCoefficient: found -1, expected a finite number of at least 0");
  workload.layer.aux_loss_coefficient = std::numeric_limits<double>::infinity();
  EXPECT_EQ(message(), "layer.auxLossCoefficient: found inf, expected a finite number of at least 0");
}

TEST(WorkloadTest, CapacityIsRoundedUpButNotByRoundingNoise) {
  // k·f·B·L/E = 2·1.1·100/10 = 22.000000000000004 in double precision: 22 slots, not 23.
  const LayerSizes sizes = SizesOf({.batch = 1,
                                    .sequence_length = 100,
                                    .model_dim = 1,
                                    .hidden_dim = 1,
                                    .experts = 10,
                                    .top_k = 2,
                                    .capacity_factor = 1.1},
                                   {});
  EXPECT_EQ(sizes.slots, 22);
}

TEST(CodecTest, WhatTravelsIsCountedWithoutScales) {
  for (const int bytes_per_element : {2, 4}) {
    const auto ratio = [&](Codec codec) { return CompressionRatio(codec, /*columns=*/10, bytes_per_element); };
    EXPECT_EQ(ratio(Codec::kNone), 1);
    for (const Codec codec : {Codec::kFp16, Codec::kBf16}) EXPECT_EQ(ratio(codec), 2.0 / bytes_per_element);
    for (const Codec codec : {Codec::kFp8, Codec::kInt8, Codec::kZfp}) EXPECT_EQ(ratio(codec), 1.0 / bytes_per_element);
  }
}

TEST(GroupsTest, ExpertGroupsStepOverShards) {
  // [ESP 2, EP 4, replicas 2] over 16 ranks: rank 11 is replica 1, EP 1, ESP 1.
  const Layout layout = EightByTwo().layout;
  EXPECT_EQ(MembersOf(Group::kExpert, layout, 11), (std::vector{9, 11, 13, 15}));
  EXPECT_EQ(MembersOf(Group::kExpertShard, layout, 11), (std::vector{8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(MembersOf(Group::kShard, layout, 11), (std::vector{10, 11}));
  EXPECT_EQ(IndexIn(Group::kExpert, layout, 11), 1);
  EXPECT_EQ(ShapeOf(Group::kExpert, layout, 8), (GroupShape{4, 4}));
  EXPECT_EQ(ShapeOf(Group::kExpert, layout, 4), (GroupShape{4, 2}));
}

}  // namespace
}  // namespace moeplan
