// The shape of a whole transformer: how many layers, which of them hold experts, and how large their matrices are.
//
// Dimensions count elements, parameters and flops count as such. Values only.
#pragma once

#include <string>
#include <vector>

#include "models/workload/workload.h"

namespace moeplan {

// Attention whose keys, values and, where q_rank is above 0, queries pass a narrow vector (DeepSeek-V2 §2.1).
struct LatentAttention {
  int q_rank = 0;  // 0: queries come from the model dimension at once.
  int kv_rank = 0;
  int nope_head_dim = 0;  // Of queries and keys, without position.
  int rope_head_dim = 0;  // With position, the key's shared by all heads.
  int value_head_dim = 0;

  friend bool operator==(const LatentAttention&, const LatentAttention&) = default;
};

// What a model may say at most; products of three dimensions stay exact enough as double.
inline constexpr int kMostLayers = 4096, kMostExperts = 1 << 16, kMostDimension = 1 << 28;

struct ModelConfig {
  std::string model_type;       // As the file says, such as "mixtral"; may be empty.
  int encoder_layers = 0;       // The first ones; 0: the model has a decoder alone. The others then also attend to the
                                // encoder.
  std::vector<bool> moe_layer;  // Of each layer, the encoder's first: whether its feed-forward network is experts.
  int model_dim = 0;            // M
  int dense_hidden_dim = 0;     // Of a feed-forward network without experts.
  int heads = 0;
  int kv_heads = 0;                  // Divides heads.
  int head_dim = 0;                  // Of queries, keys and values; with latent_attention that of its parts counts.
  LatentAttention latent_attention;  // kv_rank 0: there is none.
  int window = 0;  // How many of the last tokens a token sees in layers with a window; 0: there is none.
  std::vector<bool> windowed_layer;  // Of each layer; empty: none.
  int experts = 0;                   // E of each such layer; 0: the model is dense.
  int top_k = 0;                     // k
  Router router;              // Of its gates, which are TOP_K.
  std::string router_note;    // What of them `router` does not say, as a clause; empty: nothing.
  double swiglu_limit = 0;    // As Layer's; 0: there is none.
  bool expert_bias = false;
  int expert_hidden_dim = 0;  // H of one expert.
  int shared_hidden_dim = 0;  // Of all experts together that every token visits; 0: there is none.
  bool gated_mlp = false;     // Three matrices (SwiGLU and the like) instead of two.
  int vocab = 0;
  int max_positions = 0;  // 0: unknown.
  bool tied_embeddings = true;

  int layers() const { return static_cast<int>(moe_layer.size()); }
  int moe_layers() const;
  int ffn_matrices() const { return gated_mlp ? 3 : 2; }

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Parameters of matrices; biases and norms, which are a thousandth of them, are left out. A product with such a matrix
// takes two flops for each parameter and token.
double AttentionParameters(const ModelConfig& model);  // Of one self-attention, or attention to the encoder.
double DenseFfnParameters(const ModelConfig& model);
double ExpertParameters(const ModelConfig& model);        // Of one expert.
double SharedExpertParameters(const ModelConfig& model);  // Of all shared experts of one layer.
double RouterParameters(const ModelConfig& model);        // Of one layer.
double EmbeddingParameters(const ModelConfig& model);     // In and out, once where they are tied.

// P1 and P2 of design.md §4: everything but the experts, shared ones included, and the experts.
double TotalDenseParameters(const ModelConfig& model);
double TotalExpertParameters(const ModelConfig& model);

// The layer of its experts, in the bytes and with the capacity factor of a plain request; without batch and sequence,
// which no model has.
Layer LayerOf(const ModelConfig& model);

}  // namespace moeplan
