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

double LinearInputBytes(const RankSlice& slice, const Keeping& keeping) {
  return keeping.linear_input_bytes > 0 ? keeping.linear_input_bytes : slice.bytes_per_element;
}

// Before and after the norm of a block, whose first linear layer reads the latter.
double NormBytes(const ModelConfig& model, const RankSlice& slice, const Keeping& keeping, double read_bytes) {
  const double output_bytes = keeping.again.Has(RecomputeModule::kLayerNorm) ? 0 : read_bytes;
  return slice.own_tokens() * model.model_dim * (slice.bytes_per_element + output_bytes);
}

// Around the activation: its inputs and its output, which a linear layer reads, of one row.
double ActivationBytes(const ModelConfig& model, double hidden_dim, double bytes_per_element, double read_bytes) {
  return hidden_dim * ((model.ffn_matrices() - 1) * bytes_per_element + read_bytes);
}

}  // namespace

double AttentionKeptBytes(const ModelConfig& model, const RankSlice& slice, const Keeping& keeping) {
  if (keeping.layer_input_alone) return OwnRowBytes(model, slice);
  const LatentAttention& latent = model.latent_attention;
  const double heads = std::max(1, model.heads / slice.tensor_parallel);
  const double kv_heads = std::max(1, model.kv_heads / slice.tensor_parallel);
  const double bytes = slice.bytes_per_element, read_bytes = LinearInputBytes(slice, keeping);
  double latent_bytes = 0, cut_elements = 0, output_elements = heads * model.head_dim;
  if (latent.kv_rank > 0) {
    const double key = latent.nope_head_dim + latent.rope_head_dim;
    output_elements = heads * latent.value_head_dim;
    if (!keeping.again.Has(RecomputeModule::kMlaUpProj)) cut_elements = 2 * heads * key + output_elements;
    // Before and after their norms.
    latent_bytes = (1.0 * latent.q_rank + latent.kv_rank) * (bytes + read_bytes) + latent.rope_head_dim * bytes;
  } else {
    cut_elements = heads * model.head_dim + 2 * kv_heads * model.head_dim;
  }
  cut_elements += output_elements;
  if (slice.exchanges_heads && slice.context_parallel > 1) cut_elements += output_elements;
  // Attention keeps its output as it is.
  const double converted_bytes = read_bytes < bytes ? output_elements * read_bytes : 0;
  double head_bytes = 0;
  if (!keeping.again.Has(RecomputeModule::kCoreAttention)) {
    head_bytes = keeping.stores_scores ? bytes * slice.sequence_length : kFp32;
  }
  return NormBytes(model, slice, keeping, read_bytes) + slice.own_tokens() * latent_bytes +
         slice.tokens * (cut_elements * bytes + converted_bytes + head_bytes * heads);
}

double DenseKeptBytes(const ModelConfig& model, const RankSlice& slice, const Keeping& keeping) {
  if (keeping.layer_input_alone) return 0;
  const double read_bytes = LinearInputBytes(slice, keeping), norm_bytes = NormBytes(model, slice, keeping, read_bytes);
  if (keeping.again.Has(RecomputeModule::kMlp)) return norm_bytes;
  return norm_bytes + slice.tokens / slice.tensor_parallel *
                          ActivationBytes(model, model.dense_hidden_dim, slice.bytes_per_element, read_bytes);
}

double MoeKeptBytes(const ModelConfig& model, const RankSlice& slice, double copies, int shards,
                    const Keeping& keeping) {
  if (keeping.layer_input_alone) return 0;
  // The router and the exchange read the norm's output as it is.
  const double bytes = slice.bytes_per_element, norm_bytes = NormBytes(model, slice, keeping, bytes);
  if (keeping.again.Has(RecomputeModule::kMoe)) return norm_bytes;
  // Scores and probabilities in FP32, the map in bytes, and where each row went.
  constexpr double kRouterBytes = kFp32 + kFp32 + 1 + 4;
  const double router = slice.own_tokens() * model.experts * kRouterBytes;
  const double read_bytes = LinearInputBytes(slice, keeping);
  const double after_bytes = keeping.again.Has(RecomputeModule::kMoeAct) ? 0 : read_bytes;
  const double row =
      model.model_dim * shards * read_bytes + ActivationBytes(model, model.expert_hidden_dim, bytes, after_bytes);
  double shared = 0;
  if (!keeping.again.Has(RecomputeModule::kSharedExperts)) {
    shared = ActivationBytes(model, model.shared_hidden_dim, bytes, read_bytes);
  }
  return norm_bytes + router + slice.tokens / slice.tensor_parallel * (copies * row + shared);
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
