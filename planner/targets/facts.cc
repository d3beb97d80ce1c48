#include "planner/targets/facts.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/text.h"

namespace moeplan::planner {
namespace {

// "([0]*3+[1]*58)": runs of layers without and with experts.
std::string LayersText(const std::vector<bool>& moe_layer) {
  std::string text;
  for (size_t i = 0; i < moe_layer.size();) {
    size_t end = i + 1;
    while (end < moe_layer.size() && moe_layer[end] == moe_layer[i]) ++end;
    text += StrCat(text.empty() ? "(" : "+", "[", moe_layer[i] ? 1 : 0, "]*", end - i);
    i = end;
  }
  return text + ")";
}

}  // namespace

Facts FactsOf(const ModelConfig& model) {
  const bool experts = model.moe_layers() > 0, latent = model.latent_attention.kv_rank > 0;
  Facts facts = {{"layers", model.layers()},
                 {"model_dim", model.model_dim},
                 {"heads", model.heads},
                 {"experts", experts ? model.experts : 0}};
  const auto add = [&](std::string_view name, int value, bool known = true) {
    if (known && value > 0) facts.emplace(name, value);
  };
  add("kv_heads", model.kv_heads, !latent);
  add("head_dim", model.head_dim, !latent);
  add("dense_hidden_dim", model.dense_hidden_dim);
  add("vocab", model.vocab);
  add("top_k", model.top_k, experts);
  add("expert_hidden_dim", model.expert_hidden_dim, experts);
  add("shared_hidden_dim", model.shared_hidden_dim, experts);
  add("expert_groups", model.router.expert_groups, experts && model.router.expert_groups > 1);
  add("groups_per_token", model.router.groups_per_token, experts && model.router.expert_groups > 1);
  const LatentAttention& attention = model.latent_attention;
  add("kv_rank", attention.kv_rank);
  add("q_rank", attention.q_rank);
  add("nope_head_dim", attention.nope_head_dim, latent);
  add("rope_head_dim", attention.rope_head_dim, latent);
  add("value_head_dim", attention.value_head_dim, latent);
  facts.emplace("tied_embeddings", model.tied_embeddings);
  if (experts && model.moe_layers() < model.layers()) facts.emplace("moe_layer_freq", LayersText(model.moe_layer));
  return facts;
}

}  // namespace moeplan::planner
