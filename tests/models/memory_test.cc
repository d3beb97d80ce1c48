#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "models/memory/activations.h"
#include "models/memory/graph_memory.h"
#include "models/memory/weights.h"
#include "models/schedule/schedules.h"
#include "models/workload/workload.h"
#include "tests/test_seed.h"

namespace moeplan {
namespace {

// ---- Weights, Table 3.

TEST(TrainingStateTest, EachStageCutsOneMoreThirdOverTheReplicas) {
  // 1000 parameters on 8 replicas: 16ψ, 4ψ + 12ψ/8, 2ψ + 14ψ/8, 16ψ/8.
  EXPECT_DOUBLE_EQ(TrainingStateOf(1000, 8, 0, 2).total_bytes(), 16000);
  EXPECT_DOUBLE_EQ(TrainingStateOf(1000, 8, 1, 2).total_bytes(), 4000 + 1500);
  EXPECT_DOUBLE_EQ(TrainingStateOf(1000, 8, 2, 2).total_bytes(), 2000 + 1750);
  EXPECT_DOUBLE_EQ(TrainingStateOf(1000, 8, 3, 2).total_bytes(), 2000);
}

TEST(TrainingStateTest, FullPrecisionWeightsNeedNoCopy) {
  EXPECT_DOUBLE_EQ(TrainingStateOf(1000, 8, 0, 4).total_bytes(), 16000);
  EXPECT_DOUBLE_EQ(TrainingStateOf(1000, 8, 1, 4).total_bytes(), 8000 + 1000);
  EXPECT_DOUBLE_EQ(TrainingStateOf(1000, 8, 2, 4).total_bytes(), 4000 + 1500);
  EXPECT_DOUBLE_EQ(TrainingStateOf(1000, 8, 3, 4).total_bytes(), 2000);
}

// ---- Activations, Table 4, with the coefficients as design.md §4 prints them.

struct PaperLayer {
  double b = 2, s = 64, h = 32, a = 4, k = 2, t = 1;
};

double OurLayer(const PaperLayer& p, Recompute recompute, bool sequence_parallel) {
  const ActivationSaving saving = {
      .tensor_parallel = static_cast<int>(p.t), .sequence_parallel = sequence_parallel, .recompute = recompute};
  return AttentionActivationBytes({.tokens = p.b * p.s,
                                   .keys = p.s,
                                   .model_dim = static_cast<int>(p.h),
                                   .heads = static_cast<int>(p.a),
                                   .projected_dim = 4 * p.h},
                                  saving) +
         FeedForwardActivationBytes({.tokens = p.b * p.s,
                                     .copies = p.k,
                                     .shards = static_cast<int>(p.t),
                                     .model_dim = static_cast<int>(p.h),
                                     .hidden_dim = 4 * p.h},
                                    saving);
}

TEST(ActivationTest, OneExpertForEachTokenIsMegatronsDenseLayer) {
  // 34 + 5as/h, with a·s/h = 4·64/32 = 8.
  const PaperLayer p = {.k = 1};
  EXPECT_DOUBLE_EQ(OurLayer(p, Recompute::kNone, false), p.b * p.s * p.h * (34 + 5 * 8));
}

TEST(ActivationTest, RandomLayersGiveTheRowsOfTable4) {
  std::mt19937 random(TestSeed());
  const auto power = [&](int most) { return std::ldexp(1.0, std::uniform_int_distribution(0, most)(random)); };
  for (int round = 0; round < 2000; ++round) {
    const PaperLayer p = {
        .b = power(3), .s = power(12), .h = 64 * power(6), .a = power(6), .k = power(3), .t = power(3)};
    const double unit = p.b * p.s * p.h, scores = 5 * p.a * p.s / p.h;
    EXPECT_DOUBLE_EQ(OurLayer(p, Recompute::kNone, false), unit * (5 + 5 * p.k + (8 + 16 * p.k) / p.t + scores / p.t));
    EXPECT_DOUBLE_EQ(OurLayer(p, Recompute::kNone, true), unit * ((13 + 21 * p.k) / p.t + scores / p.t));
    EXPECT_DOUBLE_EQ(OurLayer(p, Recompute::kSelective, true), unit * (13 + 21 * p.k) / p.t);
    EXPECT_DOUBLE_EQ(OurLayer(p, Recompute::kFull, true), unit * 2 / p.t);
    EXPECT_DOUBLE_EQ(OurLayer({p.b, p.s, p.h, p.a, p.k, 1}, Recompute::kNone, false), unit * (13 + 21 * p.k + scores));
  }
}

TEST(ActivationTest, GatedExpertsKeepThreeVectorsAndAnyHiddenDimensionCounts) {
  // Per row of h = 32: 5·32 around, 3 vectors of H = 40 in 2 bytes; 3 rows for each of 10 tokens.
  const FeedForwardShape gated = {
      .tokens = 10, .copies = 3, .shards = 1, .model_dim = 32, .hidden_dim = 40, .matrices = 3};
  EXPECT_DOUBLE_EQ(FeedForwardActivationBytes(gated, {}), 10 * 3 * (5 * 32 + 3 * 2 * 40));
  // In FP32 an element is 4 bytes and a mask still one: 9·32 around.
  EXPECT_DOUBLE_EQ(FeedForwardActivationBytes(gated, {.bytes_per_element = 4}), 10 * 3 * (9 * 32 + 3 * 4 * 40));
}

TEST(ActivationTest, RowsGoToAllShardsOfTheirExpert) {
  // t = 4: whole experts hold a quarter of the rows each; cut over 2 ranks, both hold them.
  FeedForwardShape shape = {.tokens = 8, .copies = 1, .shards = 1, .model_dim = 32, .hidden_dim = 128};
  const ActivationSaving saving = {.tensor_parallel = 4};
  EXPECT_DOUBLE_EQ(FeedForwardActivationBytes(shape, saving), 8 * (5 * 32 + 4 * 128) / 4);
  shape.shards = 2;
  EXPECT_DOUBLE_EQ(FeedForwardActivationBytes(shape, saving), 8 * (2 * 5 * 32 + 4 * 128) / 4);
}

// ---- A layer in a training job.

constexpr Cluster kCluster = {.nodes = 2, .gpus_per_node = 4};

Workload SmallWorkload() {
  Workload workload;
  workload.layer = {.batch = 2,
                    .sequence_length = 64,
                    .model_dim = 32,
                    .hidden_dim = 64,
                    .experts = 4,
                    .top_k = 2,
                    .capacity_factor = 1.0};
  workload.layout = {.tensor_parallel = 2, .expert_parallel = 2, .expert_sharding_parallel = 2};
  return workload;
}

double BytesOf(Workload workload, Family family) {
  workload = *ResolveWorkload(workload, kCluster);
  const auto graph = BuildSchedule({.family = family}, workload, kCluster);
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return MemoryBytes(*graph, workload);
}

double BuffersOf(const Workload& workload, Family family) {
  return BufferBytes(*BuildSchedule({.family = family}, *ResolveWorkload(workload, kCluster), kCluster));
}

TEST(LayerMemoryTest, WithoutAStageTheWeightsAloneCount) {
  // 2 of 4 experts, 2 matrices of 32 × 64/2, 2 bytes: 8192.
  EXPECT_EQ(BytesOf(SmallWorkload(), Family::kParmS1), BuffersOf(SmallWorkload(), Family::kParmS1) + 8192);
  Workload workload = SmallWorkload();
  workload.recompute = Recompute::kFull;
  workload.sequence_parallel = true;
  EXPECT_EQ(BytesOf(workload, Family::kParmS1), BytesOf(SmallWorkload(), Family::kParmS1));
}

TEST(LayerMemoryTest, ATrainingJobHoldsStatesAndWhatTheBackwardPassReads) {
  // 4096 expert parameters on 8 / (2·2) = 2 replicas, 32·4 of the gate on 8 / 2 = 4. Stage 2: 2ψ + 14ψ/d'.
  Workload workload = SmallWorkload();
  workload.zero_stage = 2;
  const double states = (2 + 14.0 / 2) * 4096 + (2 + 14.0 / 4) * 128;
  // 128 tokens with 2 rows each: 5·32 at both shards of 2 tensor ranks, 2·2·64 cut in two.
  const double kept = 128 * 2 * (5 * 32 + 4 * 64 / 2);
  EXPECT_DOUBLE_EQ(BytesOf(workload, Family::kParmS1), BuffersOf(workload, Family::kParmS1) + states + kept);
  // Every tensor rank of BASELINE sends the same rows.
  EXPECT_DOUBLE_EQ(BytesOf(workload, Family::kBaseline), BuffersOf(workload, Family::kBaseline) + states + 2 * kept);
  workload.sequence_parallel = true;
  EXPECT_DOUBLE_EQ(BytesOf(workload, Family::kParmS1),
                   BuffersOf(workload, Family::kParmS1) + states + 128 * 2 * (5 * 32 + 4 * 64) / 2);
  // A graph with backward tasks has buffers for it.
  workload.phase = Phase::kTraining;
  EXPECT_DOUBLE_EQ(BytesOf(workload, Family::kParmS1), BuffersOf(workload, Family::kParmS1) + states);
}

TEST(LayerMemoryTest, NeverMoreInALaterStage) {
  for (const Family family : {Family::kBaseline, Family::kParmS2, Family::kMontaO2}) {
    Workload workload = SmallWorkload();
    double before = std::numeric_limits<double>::infinity();
    for (workload.zero_stage = 0; *workload.zero_stage <= kMaxZeroStage; ++*workload.zero_stage) {
      const double bytes = BytesOf(workload, family);
      EXPECT_LT(bytes, before);
      before = bytes;
    }
  }
}

TEST(LayerMemoryTest, AStageThatIsNoneIsRefused) {
  for (const int stage : {-1, 4}) {
    Workload workload = SmallWorkload();
    workload.zero_stage = stage;
    EXPECT_EQ(ResolveWorkload(workload, kCluster).status().message(),
              "zeroStage: found " + std::to_string(stage) + ", expected 0 to 3, or absent");
  }
}

}  // namespace
}  // namespace moeplan
