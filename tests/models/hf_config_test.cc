#include "models/model/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/text.h"

namespace moeplan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ModelConfig Read(std::string_view text) {
  const auto model = ModelFromHfConfig(text, "config.json");
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *model : ModelConfig();
}

std::vector<int> MoeLayers(const ModelConfig& model) {
  std::vector<int> layers;
  for (int i = 0; i < model.layers(); ++i) {
    if (model.moe_layer[i]) layers.push_back(i);
  }
  return layers;
}

double BillionParameters(const ModelConfig& model) {
  return (TotalDenseParameters(model) + TotalExpertParameters(model)) / 1e9;
}

// A config of four layers, two heads and two experts of which one is chosen, with more fields in front.
std::string Small(const std::string& more) {
  return "{" + more +
         R"("hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2,
             "num_experts": 2, "num_experts_per_tok": 1, "hidden_act": "silu", "vocab_size": 10})";
}

// ---- Parameters as their makers state them: what was read is the whole of the model.

TEST(HfConfigTest, MixtralHasExpertsInEveryLayer) {
  const ModelConfig model = Read(R"({
    "model_type": "mixtral", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "num_local_experts": 8, "tie_word_embeddings": false, "vocab_size": 32000})");
  EXPECT_EQ(model.moe_layers(), 32);
  EXPECT_EQ(model.top_k, 2);
  EXPECT_EQ(model.head_dim, 128);
  EXPECT_EQ(model.expert_hidden_dim, 14336);
  EXPECT_TRUE(model.gated_mlp);
  EXPECT_EQ(model.max_positions, 32768);
  EXPECT_NEAR(BillionParameters(model), 46.7, 0.05);
}

TEST(HfConfigTest, QwenAddsASharedExpert) {
  const ModelConfig model = Read(R"({
    "model_type": "qwen2_moe", "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 5632,
    "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_attention_heads": 16,
    "num_key_value_heads": 16, "num_hidden_layers": 24, "num_experts": 60, "num_experts_per_tok": 4,
    "decoder_sparse_step": 1, "tie_word_embeddings": false, "vocab_size": 151936})");
  EXPECT_EQ(model.shared_hidden_dim, 5632);
  EXPECT_EQ(model.expert_hidden_dim, 1408);
  EXPECT_NEAR(BillionParameters(model), 14.3, 0.05);
}

TEST(HfConfigTest, DeepSeekHasLatentAttentionAndDenseFirstLayers) {
  const ModelConfig model = Read(R"({
    "model_type": "deepseek_v3", "hidden_act": "silu", "first_k_dense_replace": 3, "hidden_size": 7168,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "tie_word_embeddings": false, "vocab_size": 129280})");
  EXPECT_EQ(model.moe_layers(), 58);
  EXPECT_FALSE(model.moe_layer[2]);
  EXPECT_TRUE(model.moe_layer[3]);
  EXPECT_EQ(model.shared_hidden_dim, 2048);
  EXPECT_NEAR(BillionParameters(model), 671, 0.5);
}

TEST(HfConfigTest, SwitchTransformersHaveTwoStacks) {
  const ModelConfig model = Read(R"({
    "model_type": "switch_transformers", "d_model": 768, "d_ff": 3072, "d_kv": 64, "num_heads": 12, "num_layers": 12,
    "num_decoder_layers": 12, "num_sparse_encoder_layers": 6, "num_sparse_decoder_layers": 6, "num_experts": 8,
    "feed_forward_proj": "relu", "vocab_size": 32128})");
  EXPECT_EQ(model.encoder_layers, 12);
  EXPECT_EQ(MoeLayers(model), (std::vector<int>{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23}));
  EXPECT_EQ(model.top_k, 1);
  EXPECT_FALSE(model.gated_mlp);
  EXPECT_NEAR(BillionParameters(model), 0.619, 0.001);
}

TEST(HfConfigTest, DbrxKeepsItsFieldsInObjects) {
  const ModelConfig model = Read(R"({
    "model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "max_seq_len": 32768, "vocab_size": 100352,
    "tie_word_embeddings": false, "attn_config": {"kv_n_heads": 8},
    "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4, "ffn_act_fn": {"name": "silu"}}})");
  EXPECT_EQ(model.kv_heads, 8);
  EXPECT_TRUE(model.gated_mlp);
  EXPECT_NEAR(BillionParameters(model), 132, 0.5);
}

TEST(HfConfigTest, Llama4KeepsTheTextApartAndHasOneSharedExpert) {
  // Maverick: 400 billion. Every other layer: dense, and 128 experts with one more for every token.
  const ModelConfig model = Read(R"({"model_type": "llama4", "text_config": {
    "model_type": "llama4_text", "hidden_act": "silu", "hidden_size": 5120, "head_dim": 128, "intermediate_size": 8192,
    "intermediate_size_mlp": 16384, "interleave_moe_layer_step": 2, "num_attention_heads": 40,
    "num_key_value_heads": 8, "num_hidden_layers": 48, "num_local_experts": 128, "num_experts_per_tok": 1,
    "tie_word_embeddings": false, "vocab_size": 202048}})");
  EXPECT_EQ(model.moe_layers(), 24);
  EXPECT_TRUE(model.moe_layer[1]);
  EXPECT_EQ(model.shared_hidden_dim, 8192);
  EXPECT_EQ(model.dense_hidden_dim, 16384);
  EXPECT_NEAR(BillionParameters(model), 400, 2);
}

TEST(HfConfigTest, Gpt2WithExpertsAdded) {
  const ModelConfig model = Read(R"({"model_type": "gpt2", "activation_function": "gelu_new", "n_embd": 768,
    "n_head": 12, "n_layer": 12, "n_positions": 1024, "n_inner": null, "vocab_size": 50257, "num_experts": 16,
    "num_experts_per_tok": 1, "decoder_sparse_step": 2})");
  EXPECT_EQ(model.dense_hidden_dim, 3072);
  EXPECT_EQ(model.expert_hidden_dim, 3072);
  EXPECT_EQ(MoeLayers(model), (std::vector<int>{1, 3, 5, 7, 9, 11}));
  EXPECT_FALSE(model.gated_mlp);
  EXPECT_TRUE(model.tied_embeddings);
}

TEST(HfConfigTest, ADenseConfigHasNoExperts) {
  const ModelConfig model = Read(R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 16,
    "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_act": "silu", "vocab_size": 10})");
  EXPECT_EQ(model.experts, 0);
  EXPECT_EQ(model.moe_layers(), 0);
}

// ---- Which layers.

TEST(HfConfigTest, EachWayToSayWhichLayersHaveExperts) {
  using Layers = std::vector<int>;
  EXPECT_EQ(MoeLayers(Read(Small(""))), (Layers{0, 1, 2, 3}));
  EXPECT_EQ(MoeLayers(Read(Small(R"("decoder_sparse_step": 2,)"))), (Layers{1, 3}));
  EXPECT_EQ(MoeLayers(Read(Small(R"("mlp_only_layers": [0, 2],)"))), (Layers{1, 3}));
  EXPECT_EQ(MoeLayers(Read(Small(R"("first_k_dense_replace": 1, "moe_layer_freq": 2,)"))), (Layers{2}));
  EXPECT_EQ(MoeLayers(Read(Small(R"("moe_layers": [3],)"))), (Layers{3}));
  EXPECT_EQ(MoeLayers(Read(Small(R"("moe_layer_start_index": 1, "moe_layer_end_index": 2,)"))), (Layers{1, 2}));
}

// ---- Refusals.

std::string Refusal(const std::string& text) {
  const auto model = ModelFromHfConfig(text, "c.json");
  EXPECT_FALSE(model.ok()) << text;
  return model.ok() ? "" : model.status().message();
}

TEST(HfConfigTest, EachWayToSayWhichLayersHaveAWindow) {
  const auto windowed = [](const std::string& more) {
    const ModelConfig model = Read(Small(more));
    EXPECT_EQ(model.window > 0, !model.windowed_layer.empty());
    std::string layers;
    for (const bool one : model.windowed_layer) layers += one ? 'w' : '-';
    return StrCat(model.window, " ", layers);
  };
  EXPECT_EQ(windowed(""), "0 ");
  EXPECT_EQ(windowed(R"("sliding_window": null, )"), "0 ");
  EXPECT_EQ(windowed(R"("sliding_window": 7, )"), "7 wwww");
  EXPECT_EQ(windowed(R"("sliding_window": 7, "use_sliding_window": false, )"), "0 ");
  EXPECT_EQ(windowed(R"("sliding_window": 7, "model_type": "gpt_oss", )"), "7 w-w-");
  EXPECT_EQ(windowed(R"("sliding_window": 7, "model_type": "gemma2", )"), "7 w-w-");
  EXPECT_EQ(windowed(R"("sliding_window": 7, "model_type": "gemma3_text", )"), "7 wwww");
  EXPECT_EQ(windowed(R"("sliding_window": 7, "model_type": "qwen2_moe", "max_window_layers": 2, )"), "7 --ww");
  EXPECT_EQ(windowed(R"("sliding_window": 7, "model_type": "qwen2_moe", "max_window_layers": 4, )"), "0 ");
  EXPECT_EQ(windowed(R"("sliding_window": 7, "sliding_window_pattern": 3, )"), "7 ww-w");
  EXPECT_EQ(windowed(R"("sliding_window": 7, "layer_types": ["full_attention", "sliding_attention",
                        "sliding_attention", "full_attention"], )"),
            "7 -ww-");
  const auto wrong = ModelFromHfConfig(Small(R"("sliding_window": 7, "layer_types": ["full_attention"], )"), "c");
  EXPECT_EQ(wrong.status().message(), "c: layer_types: found a list of 1, expected a text for each of 4 layers");
  const auto number = ModelFromHfConfig(Small(R"("sliding_window": 7, "layer_types": 3, )"), "c");
  EXPECT_EQ(number.status().message(), "c: layer_types: found no list, expected a text for each of 4 layers");
}

TEST(HfConfigTest, WhatIsWrongIsNamedWithTheFile) {
  EXPECT_EQ(Refusal("{"), "c.json: not JSON; expected a model's config.json");
  EXPECT_EQ(Refusal("[1]"), "c.json: found no object, expected a model's config.json");
  EXPECT_EQ(Refusal("{}"),
            "c.json: hidden_size or n_embd or d_model: found nothing, expected a whole number of at least 1");
  EXPECT_EQ(Refusal(Small(R"("head_dim": "8",)")),
            "c.json: head_dim: found \"8\", expected a whole number of 1 to 268435456");
  EXPECT_EQ(Refusal(Small(R"("head_dim": 1.5,)")),
            "c.json: head_dim: found 1.5, expected a whole number of 1 to 268435456");
  EXPECT_EQ(Refusal(Small(R"("head_dim": -3,)")),
            "c.json: head_dim: found -3, expected a whole number of 1 to 268435456");
  EXPECT_EQ(Refusal(Small(R"("moe_layers": [4],)")), "c.json: moe_layers: found 4, expected layers of 0 to 3");
  EXPECT_EQ(Refusal(Small(R"("num_key_value_heads": 3,)")),
            "c.json: num_key_value_heads: found 3, expected a divisor of the 2 heads");
  EXPECT_THAT(Refusal(Small(R"("mamba_d_state": 16,)")), HasSubstr("state-space"));
  EXPECT_THAT(Refusal(R"({"hidden_size": 8, "num_hidden_layers": 1000000})"),
              AllOf(HasSubstr("num_hidden_layers: found 1000000"), HasSubstr("1 to 4096")));
  EXPECT_THAT(Refusal(std::string(kMaxHfConfigBytes + 1, ' ')), HasSubstr("expected at most"));
}

TEST(HfConfigTest, MoreExpertsChosenThanThereAreIsRefused) {
  EXPECT_EQ(Refusal(R"({"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2,
                        "num_experts": 2, "num_experts_per_tok": 3, "vocab_size": 10})"),
            "c.json: num_experts_per_tok: found 3, expected at most the 2 experts");
}

TEST(HfConfigTest, RoutingMayBeLimitedToGroups) {
  const auto with = [](const char* groups) {
    return StrCat(R"({"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2,
                      "num_experts": 8, "num_experts_per_tok": 3, "vocab_size": 10)",
                  groups, "}");
  };
  const ModelConfig free = Read(with("")), limited = Read(with(R"(, "n_group": 4, "topk_group": 2)"));
  EXPECT_EQ(free.router.expert_groups, 1);
  EXPECT_EQ(free.router.groups_per_token, 1);
  EXPECT_EQ(limited.router.expert_groups, 4);
  EXPECT_EQ(limited.router.groups_per_token, 2);
  EXPECT_EQ(Read(with(R"(, "n_group": 0, "topk_group": 0)")), free);
  EXPECT_EQ(Refusal(with(R"(, "n_group": 3)")), "c.json: n_group: found 3, expected a divisor of the 8 experts");
  EXPECT_EQ(Refusal(with(R"(, "n_group": 4, "topk_group": 1)")),
            "c.json: topk_group: found 1, expected at most the 4 groups, and so many that they have 3 experts");
}

TEST(HfConfigTest, RoutersFollowTheClassOfTheModel) {
  const auto read = [](std::string_view type, std::string_view fields = "", int top_k = 2) {
    return Read(StrCat(R"({"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2,
                      "num_experts": 8, "num_experts_per_tok": )",
                       top_k, R"(, "vocab_size": 10, "model_type": ")", type, "\"", fields, "}"));
  };
  constexpr ScoreFunction kSigmoid = ScoreFunction::kSigmoid;
  EXPECT_EQ(read("mixtral").router, Router());
  EXPECT_EQ(read("qwen3_moe").router, (Router{.raw_weights = true}));
  EXPECT_EQ(read("qwen3_moe", R"(, "norm_topk_prob": true)").router, Router());
  EXPECT_EQ(read("deepseek_v3", R"(, "routed_scaling_factor": 2.5)").router,
            (Router{.score_function = kSigmoid, .weight_scale = 2.5, .correction_bias = true}));
  EXPECT_EQ(read("dots1", R"(, "scoring_func": "noaux_tc")").router,
            (Router{.score_function = kSigmoid, .raw_weights = true, .correction_bias = true}));
  EXPECT_EQ(read("minimax_m2", R"(, "scoring_func": "sigmoid", "use_routing_bias": true)").router,
            (Router{.score_function = kSigmoid, .correction_bias = true}));
  EXPECT_EQ(read("deepseek_v2", R"(, "topk_method": "greedy", "n_group": 4, "topk_group": 2)").router,
            (Router{.raw_weights = true}));
  EXPECT_EQ(read("llama4", "", 1).router,
            (Router{.score_function = kSigmoid, .raw_weights = true, .weighs_input = true}));
  const ModelConfig gpt_oss = read("gpt_oss", R"(, "swiglu_limit": 5)");
  EXPECT_EQ(gpt_oss.router, (Router{.bias = true}));
  EXPECT_EQ(gpt_oss.swiglu_limit, 5);
  EXPECT_TRUE(gpt_oss.expert_bias);
  EXPECT_EQ(LayerOf(gpt_oss).router, gpt_oss.router);
  EXPECT_EQ(Refusal(R"({"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2,
                        "num_experts": 8, "num_experts_per_tok": 2, "vocab_size": 10, "routed_scaling_factor": 0})"),
            "c.json: routed_scaling_factor: found 0, expected a finite number above 0");

  EXPECT_EQ(gpt_oss.router_note, "");
  EXPECT_EQ(read("mixtral").router_note, "");
  EXPECT_EQ(read("qwen2_moe").router_note, "the shared expert has a gate of its own");
  EXPECT_EQ(read("mixtral", "", 1).router_note, "the weight of a single expert is 1, and not its score");
  EXPECT_EQ(read("llama4").router_note, "weights multiply what several experts get");
  EXPECT_EQ(read("deepseek_v3", R"(, "scoring_func": "sqrtsoftplus")").router_note, "scores are sqrtsoftplus");
  EXPECT_EQ(read("deepseek_v2", R"(, "scoring_func": "softmax", "topk_method": "noaux_tc")").router_note,
            "choices among probabilities of a softmax are corrected by a bias");
  EXPECT_EQ(read("moe_of_tomorrow").router_note,
            "how model type \"moe_of_tomorrow\" routes is not known here beyond what the config says");
}

TEST(HfConfigTest, NoBytesCrashIt) {
  const std::string good = Small("");
  for (size_t length = 0; length < good.size(); ++length) Refusal(good.substr(0, length));
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char c : {'\0', '"', '9', '[', '\xff'}) {
      std::string bad = good;
      bad[i] = c;
      (void)ModelFromHfConfig(bad, "c.json");
    }
  }
}

}  // namespace
}  // namespace moeplan
