// What a rank keeps, against lists of tensors written out for one token.
#include "models/step/kept_memory.h"

#include <gtest/gtest.h>

namespace moeplan {
namespace {

constexpr double kBf16 = 2;

// M 32, 4 heads of 8, 2 of keys; gated networks of 64, 8 experts of 48.
ModelConfig Model() {
  ModelConfig model;
  model.moe_layer = {false, true};
  model.model_dim = 32, model.dense_hidden_dim = 64;
  model.heads = 4, model.kv_heads = 2, model.head_dim = 8;
  model.experts = 8, model.top_k = 2, model.expert_hidden_dim = 48;
  model.gated_mlp = true;
  model.vocab = 100;
  return model;
}

RankSlice Slice(double tokens) { return {.tokens = tokens, .sequence_length = 256}; }

TEST(KeptMemoryTest, AttentionKeepsItsRowsHeadsAndSums) {
  // Before and after the norm; queries, keys, values, outputs; a sum a head.
  EXPECT_DOUBLE_EQ(AttentionKeptBytes(Model(), Slice(10), {}), 10 * (kBf16 * (2 * 32 + 32 + 16 + 16 + 32) + 4 * 4));
}

TEST(KeptMemoryTest, ContextsThatExchangeHeadsKeepTheOutputOnBothSides) {
  RankSlice slice = Slice(10);
  const double alone = AttentionKeptBytes(Model(), slice, {});
  slice.exchanges_heads = true;
  EXPECT_DOUBLE_EQ(AttentionKeptBytes(Model(), slice, {}), alone);  // There is nobody to exchange with.
  slice.context_parallel = 2;
  EXPECT_DOUBLE_EQ(AttentionKeptBytes(Model(), slice, {}), alone + 10 * kBf16 * 32);
}

TEST(KeptMemoryTest, LatentAttentionKeepsItsLatentVectorsToo) {
  ModelConfig model = Model();
  model.kv_heads = 4;
  model.latent_attention = {.q_rank = 12, .kv_rank = 6, .nope_head_dim = 8, .rope_head_dim = 4, .value_head_dim = 10};
  // Keys and queries of 12 a head, values and outputs of 10; the latent ones before and after their norms.
  EXPECT_DOUBLE_EQ(AttentionKeptBytes(model, Slice(1), {}),
                   kBf16 * (2 * 32 + 4 * (12 + 12 + 10 + 10) + 12 + 12 + 6 + 6 + 4) + 4 * 4);
}

TEST(KeptMemoryTest, TensorParallelismCutsHeadsAndWithSequencesRows) {
  RankSlice slice = Slice(10);
  slice.tensor_parallel = 2;
  const double heads = kBf16 * (32 + 16 + 16 + 32) + 4 * 4, rows = kBf16 * 2 * 32;
  EXPECT_DOUBLE_EQ(AttentionKeptBytes(Model(), slice, {}), 10 * (rows + heads / 2));
  slice.sequence_parallel = true;
  EXPECT_DOUBLE_EQ(AttentionKeptBytes(Model(), slice, {}), 10 * (rows + heads) / 2);
  EXPECT_DOUBLE_EQ(DenseKeptBytes(Model(), slice, {}), 10 * kBf16 * (2 * 32 + 3 * 64) / 2);
}

TEST(KeptMemoryTest, ExpertsKeepTheRowsTheyReadOnceMore) {
  // 2.5 rows a token of 32 and, around the activation, three times 48; the router's 13 bytes an expert.
  const double around = kBf16 * 2 * 32 + 8 * 13, row = kBf16 * (32 + 3 * 48);
  EXPECT_DOUBLE_EQ(MoeKeptBytes(Model(), Slice(10), 2.5, /*shards=*/1, {}), 10 * (around + 2.5 * row));
  ModelConfig shared = Model();
  shared.shared_hidden_dim = 20;
  EXPECT_DOUBLE_EQ(MoeKeptBytes(shared, Slice(10), 2.5, /*shards=*/1, {}), 10 * (around + 2.5 * row + kBf16 * 3 * 20));
  // Both shards of an expert read whole rows.
  RankSlice slice = Slice(10);
  slice.tensor_parallel = 2;
  EXPECT_DOUBLE_EQ(MoeKeptBytes(Model(), slice, 2.5, /*shards=*/2, {}),
                   10 * (around + 2.5 * kBf16 * (2 * 32 + 3 * 48) / 2));
}

TEST(KeptMemoryTest, RecomputationKeepsALayersInputAlone) {
  const Keeping full = {.layer_input_alone = true};
  EXPECT_DOUBLE_EQ(AttentionKeptBytes(Model(), Slice(10), full), 10 * kBf16 * 32);
  EXPECT_EQ(DenseKeptBytes(Model(), Slice(10), full), 0);
  EXPECT_EQ(MoeKeptBytes(Model(), Slice(10), 2, 1, full), 0);
}

TEST(KeptMemoryTest, SelectedPartsAreLeftOut) {
  const RankSlice slice = Slice(1);
  const auto attention = [&](const ModelConfig& model, RecomputeModules again) {
    return AttentionKeptBytes(model, slice, {}) - AttentionKeptBytes(model, slice, {.again = again});
  };
  EXPECT_DOUBLE_EQ(attention(Model(), {RecomputeModule::kCoreAttention}), 4 * 4);
  EXPECT_DOUBLE_EQ(attention(Model(), {RecomputeModule::kLayerNorm}), kBf16 * 32);
  EXPECT_DOUBLE_EQ(attention(Model(), {RecomputeModule::kMlp}), 0);
  ModelConfig latent = Model();
  latent.latent_attention = {.q_rank = 12, .kv_rank = 6, .nope_head_dim = 8, .rope_head_dim = 4, .value_head_dim = 10};
  // Queries, keys and values of 4 heads; the output stays.
  EXPECT_DOUBLE_EQ(attention(latent, {RecomputeModule::kMlaUpProj}), kBf16 * 4 * (12 + 12 + 10));
  EXPECT_DOUBLE_EQ(DenseKeptBytes(Model(), slice, {.again = {RecomputeModule::kMlp}}), kBf16 * 2 * 32);
  ModelConfig shared = Model();
  shared.shared_hidden_dim = 20;
  const auto experts = [&](RecomputeModules again) {
    return MoeKeptBytes(shared, slice, 2.5, 1, {}) - MoeKeptBytes(shared, slice, 2.5, 1, {.again = again});
  };
  EXPECT_DOUBLE_EQ(experts({RecomputeModule::kMoeAct}), kBf16 * 2.5 * 48);
  EXPECT_DOUBLE_EQ(experts({RecomputeModule::kSharedExperts}), kBf16 * 3 * 20);
  EXPECT_DOUBLE_EQ(experts({RecomputeModule::kLayerNorm, RecomputeModule::kMoeAct}), kBf16 * (32 + 2.5 * 48));
  EXPECT_DOUBLE_EQ(MoeKeptBytes(shared, slice, 2.5, 1, {.again = {RecomputeModule::kMoe}}), kBf16 * 2 * 32);
}

// A linear layer keeps what it reads in its own precision: the norm's output, what is after an activation, and once
// more what attention makes.
TEST(KeptMemoryTest, LinearLayersKeepWhatTheyReadAsTheyReadIt) {
  const Keeping fp8 = {.linear_input_bytes = 1};
  EXPECT_DOUBLE_EQ(AttentionKeptBytes(Model(), Slice(1), fp8), kBf16 * (32 + 32 + 16 + 16 + 32) + 32 + 32 + 4 * 4);
  EXPECT_DOUBLE_EQ(DenseKeptBytes(Model(), Slice(1), fp8), kBf16 * (32 + 2 * 64) + 32 + 64);
  // The router and the exchange read the norm's output as it is.
  EXPECT_DOUBLE_EQ(MoeKeptBytes(Model(), Slice(1), 2, 1, fp8),
                   kBf16 * 2 * 32 + 8 * 13 + 2 * (32 + kBf16 * 2 * 48 + 48));
}

TEST(KeptMemoryTest, TheHeadHoldsLogitsRowsAndASpareGradient) {
  // Rows before and after the norm and the gradient of the latter; a gradient of the matrix.
  EXPECT_DOUBLE_EQ(HeadBytes(Model(), Slice(10)), kBf16 * (10 * (100 + 3 * 32) + 100 * 32));
  // Two ranks: half the rows before and after, the gathered row and its gradient, and the scattered gradient.
  RankSlice slice = Slice(10);
  slice.tensor_parallel = 2, slice.sequence_parallel = true;
  EXPECT_DOUBLE_EQ(HeadBytes(Model(), slice), kBf16 * (10 * (50 + 2 * 32 / 2.0 + 2 * 32 + 32 / 2.0) + 100 * 32 / 2));
}

TEST(KeptMemoryTest, ASpareGradientOfEachShapeStays) {
  const double attention = 32 * 64 + 32 * 32, dense = 32 * 128 + 64 * 32, experts = 32 * 96 + 48 * 32;
  EXPECT_DOUBLE_EQ(SpareGradientBytes(Model(), Slice(10), true, false, 1), kBf16 * (attention + dense));
  EXPECT_DOUBLE_EQ(SpareGradientBytes(Model(), Slice(10), true, true, 1), kBf16 * (attention + dense + experts));
  // A network as wide as the experts has the same shapes.
  ModelConfig model = Model();
  model.dense_hidden_dim = 48;
  EXPECT_DOUBLE_EQ(SpareGradientBytes(model, Slice(10), true, true, 1), kBf16 * (attention + experts));
}

}  // namespace
}  // namespace moeplan
