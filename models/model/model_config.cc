#include "models/model/model_config.h"

#include <algorithm>

namespace moeplan {

int ModelConfig::moe_layers() const { return static_cast<int>(std::ranges::count(moe_layer, true)); }

double AttentionParameters(const ModelConfig& model) {
  const double width = model.model_dim, heads = model.heads;
  if (model.latent_attention.kv_rank == 0) {
    return 2 * width * model.head_dim * (heads + model.kv_heads);  // Query and output; key and value.
  }
  const LatentAttention& latent = model.latent_attention;
  const double query_dim = heads * (latent.nope_head_dim + latent.rope_head_dim);
  const double query = latent.q_rank > 0 ? latent.q_rank * (width + query_dim) : width * query_dim;
  const double key_value = width * (latent.kv_rank + latent.rope_head_dim) +
                           latent.kv_rank * heads * (latent.nope_head_dim + latent.value_head_dim);
  return query + key_value + width * heads * latent.value_head_dim;
}

double DenseFfnParameters(const ModelConfig& model) {
  return static_cast<double>(model.ffn_matrices()) * model.model_dim * model.dense_hidden_dim;
}

double ExpertParameters(const ModelConfig& model) {
  return static_cast<double>(model.ffn_matrices()) * model.model_dim * model.expert_hidden_dim;
}

double SharedExpertParameters(const ModelConfig& model) {
  return static_cast<double>(model.ffn_matrices()) * model.model_dim * model.shared_hidden_dim;
}

double RouterParameters(const ModelConfig& model) { return static_cast<double>(model.model_dim) * model.experts; }

double EmbeddingParameters(const ModelConfig& model) {
  return (model.tied_embeddings ? 1.0 : 2.0) * model.vocab * model.model_dim;
}

double TotalDenseParameters(const ModelConfig& model) {
  const double moe_layers = model.moe_layers(), dense_layers = model.layers() - moe_layers;
  const double attentions =
      model.layers() + (model.encoder_layers > 0 ? model.layers() - model.encoder_layers : 0);  // With those across.
  return attentions * AttentionParameters(model) + dense_layers * DenseFfnParameters(model) +
         moe_layers * (SharedExpertParameters(model) + RouterParameters(model)) + EmbeddingParameters(model);
}

double TotalExpertParameters(const ModelConfig& model) {
  return static_cast<double>(model.moe_layers()) * model.experts * ExpertParameters(model);
}

Layer LayerOf(const ModelConfig& model) {
  return {.model_dim = model.model_dim,
          .hidden_dim = model.expert_hidden_dim,
          .experts = model.experts,
          .top_k = model.top_k,
          .capacity_factor = 1,
          .expert_matrices = model.ffn_matrices(),
          .router = model.router,
          .swiglu_limit = model.swiglu_limit,
          .expert_bias = model.expert_bias,
          .shared_hidden_dim = model.shared_hidden_dim};
}

}  // namespace moeplan
