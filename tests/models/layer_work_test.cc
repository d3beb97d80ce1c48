#include "models/step/layer_work.h"

#include <gtest/gtest.h>

namespace moeplan {
namespace {

// M 512, 8 heads of 64 with 2 of keys and values, H 2048, gated.
ModelConfig Grouped() {
  ModelConfig model;
  model.moe_layer = {false};
  model.model_dim = 512;
  model.heads = 8;
  model.kv_heads = 2;
  model.head_dim = 64;
  model.dense_hidden_dim = 2048;
  model.gated_mlp = true;
  model.vocab = 1000;
  return model;
}

RankSlice SliceOf(int tensor) {
  return {.tokens = 1024, .tensor_parallel = tensor, .sequence_parallel = tensor > 1, .sequence_length = 1024};
}

double Forward(const BlockWork& work, Kernel kernel) {
  double bytes = 0;
  for (const MovedWork& moved : work.moved) bytes += moved.kernel == kernel ? moved.forward_bytes : 0;
  return bytes;
}

double LinearFlops(const BlockWork& work) {
  double flops = 0;
  for (const LinearWork& linear : work.linears) flops += linear.flops();
  return flops;
}

TEST(LayerWorkTest, AttentionOfGroupedKeysCutOverTwoRanks) {
  const BlockWork work = AttentionBlockWork(Grouped(), SliceOf(2));
  ASSERT_EQ(work.linears.size(), 2u);
  // Four heads of queries, one of keys, one of values.
  EXPECT_EQ(work.linears[0].shape(), (KernelShape{.in_features = 512, .out_features = 6 * 64, .experts = 1}));
  EXPECT_EQ(work.linears[1].shape(), (KernelShape{.in_features = 4 * 64, .out_features = 512, .experts = 1}));
  EXPECT_EQ(work.attention->shape,
            (KernelShape{.heads = 4, .kv_heads = 1, .query_key_dim = 64, .value_dim = 64, .sequence = 1024}));
  EXPECT_EQ(work.attention->flops, 2.0 * 1024 * 1024 * 4 * 128);
  // Between blocks a rank has 512 rows of 1 KiB: the norm reads and writes them, the sum reads two and writes one.
  EXPECT_EQ(Forward(work, Kernel::kNorm), 2 * 512 * 1024);
  EXPECT_EQ(Forward(work, Kernel::kResidual), 3 * 512 * 1024);
  EXPECT_EQ(Forward(work, Kernel::kRotary), 2 * 1024 * 5 * 64 * 2);
}

TEST(LayerWorkTest, AWindowLeavesTheTokensThatItSees) {
  RankSlice slice = SliceOf(1);
  slice.window = 256;
  const AttentionWork windowed = *AttentionBlockWork(Grouped(), slice).attention;
  EXPECT_EQ(windowed.shape.window, 256);
  EXPECT_EQ(windowed.flops, 2.0 * (2 * 1024 * 256 - 256 * 256) * 8 * 128);
  EXPECT_EQ(windowed.flops, AttentionFlops(windowed.shape));
  // Each pair of tokens once: twice those that a causal mask of that width leaves, but for the diagonal.
  double pairs = 0;
  for (int token = 1; token <= 1024; ++token) pairs += std::min(token, 256);
  EXPECT_NEAR(windowed.flops / (2.0 * 8 * 128), 2 * pairs, 256);
}

TEST(LayerWorkTest, AllRanksTogetherDoTheProductsOfTheModel) {
  ModelConfig latent = Grouped();
  latent.kv_heads = 8;
  latent.latent_attention = {.kv_rank = 128, .nope_head_dim = 64, .rope_head_dim = 32, .value_head_dim = 64};
  for (const ModelConfig& model : {Grouped(), latent}) {
    const double attention = 2 * 1024 * AttentionParameters(model);
    EXPECT_DOUBLE_EQ(LinearFlops(AttentionBlockWork(model, SliceOf(1))), attention);
    EXPECT_DOUBLE_EQ(LinearFlops(DenseBlockWork(model, SliceOf(1))), 2 * 1024 * DenseFfnParameters(model));
    EXPECT_DOUBLE_EQ(2 * LinearFlops(DenseBlockWork(model, SliceOf(2))), 2 * 1024 * DenseFfnParameters(model));
    EXPECT_DOUBLE_EQ(2 * LinearFlops(HeadWork(model, SliceOf(2))), 2 * 1024 * 1000.0 * 512);
  }
  EXPECT_DOUBLE_EQ(2 * LinearFlops(AttentionBlockWork(Grouped(), SliceOf(2))),
                   2 * 1024 * AttentionParameters(Grouped()));
}

TEST(LayerWorkTest, ContextsThatExchangeHeadsSeeWholeSequencesAndCopyTwicePerExchange) {
  RankSlice slice = SliceOf(1);
  slice.tokens = 256;  // A quarter of a sequence.
  slice.context_parallel = 4;
  const AttentionWork rounds = *AttentionBlockWork(Grouped(), slice).attention;
  slice.exchanges_heads = true;
  const BlockWork work = AttentionBlockWork(Grouped(), slice);
  EXPECT_EQ(rounds.shape.heads, 8);
  EXPECT_EQ(work.attention->shape.heads, 2);
  EXPECT_EQ(work.attention->flops, rounds.flops);
  EXPECT_EQ(work.attention->flops, 2.0 * 1024 * 1024 * 2 * 128);
  // Queries, keys, values and outputs, 20 heads of 64, before and after.
  EXPECT_EQ(Forward(work, Kernel::kDeviceCopy), 2 * 256 * 20 * 64 * 2);
}

TEST(LayerWorkTest, AnActivationReadsWhatItsMatricesMade) {
  const MovedWork gated = ActivationWork(/*rows=*/10, /*hidden_dim=*/100, /*matrices=*/3, /*bytes_per_element=*/2);
  EXPECT_EQ(gated.forward_bytes, 3 * 2000);
  EXPECT_EQ(gated.backward_bytes, 5 * 2000);
  const MovedWork plain = ActivationWork(10, 100, 2, 2);
  EXPECT_EQ(plain.forward_bytes, 2 * 2000);
  EXPECT_EQ(plain.backward_bytes, 3 * 2000);
}

TEST(LayerWorkTest, TheOptimizerPassesOverGradientsAndItsShareOfTheStates) {
  EXPECT_EQ(OptimizerBytes(1000, 1, 2), 1000 * (4 + 8) + 1000 * (4 + 16 + 12 + 2));
  EXPECT_EQ(OptimizerBytes(1000, 4, 2), 1000 * (4 + 8) + 250 * (4 + 16 + 12 + 2));
  EXPECT_EQ(OptimizerBytes(1000, 4, 2, 2), 1000 * (2 + 4) + 250 * (2 + 14 + 12 + 2));
}

}  // namespace
}  // namespace moeplan
