#include "models/step/kept_memory.h"

#include <algorithm>
#include <set>
#include <utility>

namespace moeplan {
namespace {

constexpr double kFp32 = 4;

double OwnRowBytes(const ModelConfig& model, const RankSlice& slice) {
  return slice.own_tokens() * model.model_dim * slice.bytes_per_element;
}

// Around the activation: its inputs and its output, of one row.
double ActivationElements(const ModelConfig& model, double hidden_dim) { return model.ffn_matrices() * hidden_dim; }

}  // namespace

double AttentionKeptBytes(const ModelConfig& model, const RankSlice& slice, const Keeping& keeping) {
  const double rows = OwnRowBytes(model, slice);
  if (keeping.recompute == Recompute::kFull) return rows;
  const LatentAttention& latent = model.latent_attention;
  const double heads = std::max(1, model.heads / slice.tensor_parallel);
  const double kv_heads = std::max(1, model.kv_heads / slice.tensor_parallel);
  double latent_elements = 0, cut_elements = 0, output_elements = heads * model.head_dim;
  if (latent.kv_rank > 0) {
    const double key = latent.nope_head_dim + latent.rope_head_dim;
    output_elements = heads * latent.value_head_dim;
    cut_elements = 2 * heads * key + 2 * output_elements;
    latent_elements = 2.0 * latent.q_rank + 2.0 * latent.kv_rank + latent.rope_head_dim;
  } else {
    cut_elements = 2 * heads * model.head_dim + 2 * kv_heads * model.head_dim;
  }
  if (slice.exchanges_heads && slice.context_parallel > 1) cut_elements += output_elements;
  double head_bytes = 0;
  if (keeping.recompute == Recompute::kNone) {
    head_bytes = keeping.stores_scores ? 1.0 * slice.bytes_per_element * slice.sequence_length : kFp32;
  }
  return 2 * rows + slice.own_tokens() * latent_elements * slice.bytes_per_element +
         slice.tokens * (cut_elements * slice.bytes_per_element + head_bytes * heads);
}

double DenseKeptBytes(const ModelConfig& model, const RankSlice& slice, const Keeping& keeping) {
  if (keeping.recompute == Recompute::kFull) return 0;
  return 2 * OwnRowBytes(model, slice) + slice.tokens * ActivationElements(model, model.dense_hidden_dim) *
                                             slice.bytes_per_element / slice.tensor_parallel;
}

double MoeKeptBytes(const ModelConfig& model, const RankSlice& slice, double copies, int shards,
                    const Keeping& keeping) {
  if (keeping.recompute == Recompute::kFull) return 0;
  // Scores and probabilities in FP32, the map in bytes, and where each row went.
  constexpr double kRouterBytes = kFp32 + kFp32 + 1 + 4;
  const double router = slice.own_tokens() * model.experts * kRouterBytes;
  const double row = model.model_dim * shards + ActivationElements(model, model.expert_hidden_dim);
  const double routed = slice.tokens * copies * row / slice.tensor_parallel;
  const double shared = slice.tokens * ActivationElements(model, model.shared_hidden_dim) / slice.tensor_parallel;
  return 2 * OwnRowBytes(model, slice) + router + (routed + shared) * slice.bytes_per_element;
}

double JoinKeptBytes(const ModelConfig& model, const RankSlice& slice) { return 4 * OwnRowBytes(model, slice); }

double HeadBytes(const ModelConfig& model, const RankSlice& slice) {
  const double logits = slice.tokens * model.vocab / slice.tensor_parallel;
  const double own = slice.own_tokens() * model.model_dim, all = slice.tokens * model.model_dim;
  const bool gathers = slice.sequence_parallel && slice.tensor_parallel > 1;
  const double rows = 2 * own + all + (gathers ? all + own : 0);
  const double spare = 1.0 * model.vocab * model.model_dim / slice.tensor_parallel;
  return (logits + rows + spare) * slice.bytes_per_element;
}

double SpareGradientBytes(const ModelConfig& model, const RankSlice& slice, bool has_dense, bool has_experts,
                          int shards) {
  std::set<std::pair<int, int>> shapes;
  const auto add = [&](const BlockWork& work) {
    for (const LinearWork& linear : work.linears) shapes.emplace(linear.in_features, linear.out_features);
  };
  add(AttentionBlockWork(model, slice));
  if (has_dense) add(DenseBlockWork(model, slice));
  if (has_experts && model.shared_hidden_dim > 0) add(SharedExpertWork(model, slice));
  if (has_experts) {
    add({.linears = ExpertLinears(model.model_dim, std::max(1, model.expert_hidden_dim / shards), model.ffn_matrices(),
                                  slice.tokens, /*experts=*/1),
         .attention = {},
         .moved = {}});
  }
  double elements = 0;
  for (const auto& [in_features, out_features] : shapes) elements += 1.0 * in_features * out_features;
  return elements * slice.bytes_per_element;
}

}  // namespace moeplan
