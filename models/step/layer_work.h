// Each function lists what one rank computes for one micro-batch in one part of a transformer: linear layers,
// attention, and the kernels that only move memory. What a layer sends is priced by planner/layout/step_time; a
// schedule runs the experts.
//
// The lists are those of Megatron Core with Transformer Engine's kernels: RMSNorm before attention and before the
// feed-forward network, a fused sum with the residual after each, rotary embedding of queries and keys, SwiGLU in one
// kernel, FlashAttention. Weights of linear layers get their gradients accumulated in FP32. Values only; pure.
#pragma once

#include <optional>
#include <vector>

#include "models/cost/operation.h"
#include "models/model/model_config.h"
#include "models/step/recompute.h"

namespace moeplan {

// A rank holds this part of a micro-batch and of a layer's weights.
struct RankSlice {
  double tokens = 0;  // Of a micro-batch that a tensor-parallel group holds.
  int tensor_parallel = 1;
  bool sequence_parallel = false;  // Between blocks each rank has tokens / tensor_parallel of them.
  int context_parallel = 1;
  bool stores_scores = false;    // Attention as products and a softmax, whole; else block by block (FlashAttention).
  bool exchanges_heads = false;  // Contexts by all-to-all: whole sequences of some heads, not a part of all heads.
  int sequence_length = 0;
  int window = 0;  // That a token of this layer sees; 0, or at least the sequence: all before it.
  int bytes_per_element = 2;

  // Tokens of a rank between blocks.
  double own_tokens() const { return sequence_parallel ? tokens / tensor_parallel : tokens; }
};

struct LinearWork {
  double rows = 0;
  int in_features = 0, out_features = 0;
  int experts = 1;
  bool keeps_precision = false;           // It stays in BF16 where others are computed in less: the last product.
  std::optional<RecomputeModule> module;  // That it is computed again with.

  KernelShape shape() const;
  double flops() const;  // Of one of its three products.
};

struct AttentionWork {
  KernelShape shape;
  double flops = 0;  // As KernelShape counts them.
};

// A kernel that moves memory: what it reads and writes in each pass, in how many launches.
struct MovedWork {
  Kernel kernel = Kernel::kNorm;
  double forward_bytes = 0, backward_bytes = 0;
  int forward_launches = 1, backward_launches = 1;
  std::optional<RecomputeModule> module;  // As LinearWork's.
};

struct BlockWork {
  std::vector<LinearWork> linears;
  std::optional<AttentionWork> attention;
  std::vector<MovedWork> moved;
};

// Norm, projections, rotary embedding, scores and values, the sum with the residual. Scores that are stored are
// computed whole, and the softmax passes over them. With exchanges_heads also the copies that lay heads and
// tokens out for the exchange and back (4 passes over queries, keys, values and outputs).
BlockWork AttentionBlockWork(const ModelConfig& model, const RankSlice& slice);
// Norm, the matrices of a dense network, its activation, the sum with the residual.
BlockWork DenseBlockWork(const ModelConfig& model, const RankSlice& slice);
// What is around the experts in a layer that has some: norm, and the sum with the residual.
BlockWork AroundExpertsWork(const ModelConfig& model, const RankSlice& slice);
// The shared expert, and the sum of its output with the routed ones'. Requires a model that has one.
BlockWork SharedExpertWork(const ModelConfig& model, const RankSlice& slice);
// The first stage looks up the tokens, and scatters their gradients in FP32.
BlockWork EmbeddingWork(const ModelConfig& model, const RankSlice& slice);
// The last stage has a norm, the product with the vocabulary, and the loss, as kCrossEntropy on logits that each pass
// reads and writes once, whatever more an implementation that is not fused does.
BlockWork HeadWork(const ModelConfig& model, const RankSlice& slice);

// Before a layer that predicts a further token: norms of its row and of the next token's, both side by side, which are
// kJoinedWidth times as wide as the model, and the product that makes one of them (DeepSeek-V3 §2.2; Megatron Core's
// MTP).
inline constexpr int kJoinedWidth = 2;
BlockWork JoinWork(const ModelConfig& model, const RankSlice& slice);

// What the optimizer's step passes over in bytes: `parameters` of a rank, whose states are cut over `shards` ranks (1:
// each has all). Gradients, of 4 bytes or 2, are cleared, scaled before they are summed, read for their norm and by
// Adam beside the FP32 copy and both moments, which are written with the weights.
double OptimizerBytes(double parameters, double shards, int bytes_per_element, int gradient_bytes = 4);

// Passes over what GATE counts, the tokens that the router reads (docs/contract.md), and over what PERMUTE counts, the
// rows of one permutation, and how many kernels each is.
//
// The router reads the tokens, and adds its gradient to theirs; and it moves the scores of all experts in FP32 four
// times, in so many kernels: product, softmax, choice, scatter of probabilities and of the map, and the loss of
// balance, as in Megatron Core's moe/router.py. Permutation and its inverse, measured together in four launches, read
// or write the tokens once and the rows of their pairs three times (SimuMax's benchmark).
double RouterPasses(int experts, int model_dim, int bytes_per_element);
double PermutePasses(int top_k);
inline constexpr int kRouterLaunches = 6, kPermuteLaunches = 2;

// The expert products of a MoE layer as linear layers: `rows` in all over `experts` local ones, each cut to hidden_dim.
std::vector<LinearWork> ExpertLinears(int model_dim, int hidden_dim, int matrices, double rows, int experts);
// The activation between them, of `rows` in all.
MovedWork ActivationWork(double rows, double hidden_dim, int matrices, int bytes_per_element);

}  // namespace moeplan
