#include <gtest/gtest.h>

#include <algorithm>
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

TEST(WorkloadTest, RulesOfARouterFitEachOtherAndTheGate) {
  const auto error_of = [](const Router& router, GateKind gate = GateKind::kTopK, int top_k = 2) {
    Workload workload = EightByTwo();
    workload.layer.gate = gate;
    workload.layer.top_k = top_k;
    workload.layer.router = router;
    return ResolveWorkload(workload, kTwoNodesOfEight).status().message();
  };
  constexpr ScoreFunction kSigmoid = ScoreFunction::kSigmoid;
  EXPECT_EQ(error_of({.score_function = kSigmoid, .expert_groups = 2, .groups_per_token = 1, .correction_bias = true}),
            "");
  EXPECT_EQ(error_of({.weighs_input = true}, GateKind::kTopK, 1), "");
  EXPECT_EQ(error_of({}, GateKind::kHash), "");
  EXPECT_EQ(error_of({.bias = true}, GateKind::kHash),
            "layer.router: found an object, expected none with gate HASH, but with TOP_K");
  EXPECT_EQ(error_of({.weight_scale = 0}), "layer.router.weightScale: found 0, expected a finite number above 0");
  EXPECT_EQ(error_of({.correction_bias = true}),
            "layer.router.correctionBias: found true, expected false unless layer.router.scoreFunction is SIGMOID");
  EXPECT_EQ(error_of({.weighs_input = true}),
            "layer.router.weighsInput: found true, expected false unless layer.topK is 1, and it is 2");
  EXPECT_EQ(error_of({.expert_groups = 3, .groups_per_token = 3}),
            "layer.router.expertGroups: found 3, expected a divisor of layer.experts, which is 4");
  EXPECT_EQ(
      error_of({.expert_groups = 4, .groups_per_token = 1}),
      "layer.router.groupsPerToken: found 1, expected 2 to 4, so that there are layer.topK experts to choose among");
  EXPECT_EQ(error_of({.score_function = kSigmoid, .expert_groups = 4, .groups_per_token = 3, .correction_bias = true}),
            "layer.router.expertGroups: found 4, expected groups of at least 2 experts, as with correctionBias the two "
            "best of a group count");
}

TEST(WorkloadTest, OnlySwiGluHasALimit) {
  Workload workload = EightByTwo();
  workload.layer.swiglu_limit = 7;
  EXPECT_EQ(ResolveWorkload(workload, kTwoNodesOfEight).status().message(),
            "layer.swigluLimit: found 7, expected 0 unless experts are FFN of 3 matrices");
  workload.layer.expert_matrices = 3;
  EXPECT_EQ(ResolveWorkload(workload, kTwoNodesOfEight).status(), OkStatus());
  workload.layer.swiglu_limit = -1;
  EXPECT_EQ(ResolveWorkload(workload, kTwoNodesOfEight).status().message(),
            "layer.swigluLimit: found -1, expected a finite number of at least 0");
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

TEST(WorkloadTest, WithoutACapacityFactorALayerIsDropless) {
  Workload workload = EightByTwo();
  const auto message = [&] { return ResolveWorkload(workload, kTwoNodesOfEight).status().message(); };
  Layer& layer = workload.layer;
  layer.capacity_factor = -1;
  EXPECT_EQ(message(), "layer.capacityFactor: found -1, expected a finite number of at least 0");
  layer.capacity_factor = 1;
  const LayerSizes even = SizesOf(layer, workload.layout);
  layer.receive_factor = 2;
  EXPECT_EQ(message(),
            "layer.receiveFactor: found 2, expected 0, because layer.capacityFactor says how many slots an expert has");
  layer.capacity_factor = 0;
  EXPECT_EQ(message(), "");
  const LayerSizes dropless = SizesOf(layer, workload.layout);
  EXPECT_EQ(dropless.slots, even.slots);
  EXPECT_EQ(dropless.dispatched_bytes, even.dispatched_bytes);
  layer.receive_factor = 0.5;
  EXPECT_EQ(message(), "layer.receiveFactor: found 0.5, expected a finite number of at least 1");
  layer.receive_factor = 0;
  workload.capacity_passing = CapacityPassing::kPadded;
  EXPECT_EQ(message().substr(0, 39), "capacityPassing: found PADDED, expected");
  workload.capacity_passing = CapacityPassing::kExact;
  layer.gate = GateKind::kExpertChoice;
  EXPECT_EQ(message().substr(0, 41), "layer.capacityFactor: found 0, expected a");
}

TEST(WorkloadTest, SlotsCanBeSet) {
  const Workload workload = EightByTwo();
  for (Layer layer : {workload.layer, [&] {
                        Layer dropless = workload.layer;
                        dropless.capacity_factor = 0;
                        return dropless;
                      }()}) {
    for (const int slots : {1, 2, 3, 17, 1000, 65537, 123456789}) {
      const Layer made = WithSlots(layer, workload.layout, slots);
      EXPECT_EQ(SizesOf(made, workload.layout).slots, slots);
      EXPECT_EQ(IsDropless(made), IsDropless(layer));
    }
  }
}

TEST(CodecTest, WhatTravelsIsCountedWithoutScales) {
  for (const int bytes_per_element : {2, 4}) {
    const auto ratio = [&](Codec codec) { return CompressionRatio(codec, /*columns=*/10, bytes_per_element); };
    EXPECT_EQ(ratio(Codec::kNone), 1);
    for (const Codec codec : {Codec::kFp16, Codec::kBf16}) EXPECT_EQ(ratio(codec), 2.0 / bytes_per_element);
    for (const Codec codec : {Codec::kFp8, Codec::kInt8, Codec::kZfp, Codec::kFp8Blockwise}) {
      EXPECT_EQ(ratio(codec), 1.0 / bytes_per_element);
    }
  }
}

TEST(WorkloadTest, GradientsAreWholeElementsOfABackwardPass) {
  Workload workload = EightByTwo();
  const auto error = [&](double bytes, Phase phase) {
    workload.gradient_bytes = bytes;
    workload.phase = phase;
    return ResolveWorkload(workload, kTwoNodesOfEight).status().message();
  };
  for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kTraining}) EXPECT_EQ(error(0, phase), "");
  EXPECT_EQ(error(4, Phase::kTraining), "");
  EXPECT_EQ(error(4, Phase::kForward),
            "gradientBytes: found 4, expected 0 in a forward pass, which has no gradients to exchange; set phase to "
            "BACKWARD or TRAINING");
  EXPECT_EQ(error(3, Phase::kTraining),
            "gradientBytes: found 3, expected whole elements of layer.bytesPerElement, which is 2");
  EXPECT_EQ(error(-2, Phase::kTraining), "gradientBytes: found -2, expected a finite number of at least 0");
  EXPECT_EQ(error(std::numeric_limits<double>::infinity(), Phase::kTraining),
            "gradientBytes: found inf, expected a finite number of at least 0");
  EXPECT_EQ(error(2e15, Phase::kTraining), "gradientBytes: found 2e+15, expected at most 1e+15");
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

TEST(GroupsTest, DenseReplicasAreTheRanksOfEqualPlaceInTheirMpGroup) {
  for (const int tensor : {1, 2, 4, 16}) {
    for (const int contexts : {1, 2}) {
      const Layout layout = {.tensor_parallel = tensor, .context_parallel = contexts, .data_parallel = 3};
      const int ranks = tensor * contexts * 3;
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<int> replicas;
        for (int other = 0; other < ranks; ++other) {
          if (IndexIn(Group::kTensor, layout, other) == IndexIn(Group::kTensor, layout, rank))
            replicas.push_back(other);
        }
        EXPECT_EQ(MembersOf(Group::kDenseReplicas, layout, rank), replicas);
      }
      // Of 8 ranks to a node, those of the first node that the group of rank 0 has.
      const std::vector<int> members = MembersOf(Group::kDenseReplicas, layout, 0);
      const int here = static_cast<int>(std::ranges::count_if(members, [](int rank) { return rank < 8; }));
      EXPECT_EQ(ShapeOf(Group::kDenseReplicas, layout, 8), (GroupShape{3 * contexts, here}));
    }
  }
}

}  // namespace
}  // namespace moeplan
