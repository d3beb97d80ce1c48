#include "planner/layout/stages.h"

#include <algorithm>
#include <cstddef>

#include "models/check.h"

namespace moeplan::planner {
namespace {

double Vocabulary(const ModelConfig& model) { return static_cast<double>(model.vocab) * model.model_dim; }

}  // namespace

std::vector<Stage> StagesOf(const ModelConfig& model, int pipeline) {
  MOEPLAN_CHECK(pipeline >= 1 && model.layers() % pipeline == 0 && model.encoder_layers == 0);
  const int run = model.layers() / pipeline;
  std::vector<Stage> stages;
  for (int index = 0; index < pipeline; ++index) {
    const auto first = model.moe_layer.begin() + static_cast<std::ptrdiff_t>(index) * run;
    stages.push_back({.index = index,
                      .layers = run,
                      .moe_layers = static_cast<int>(std::count(first, first + run, true)),
                      .embeds = index == 0,
                      .predicts = index + 1 == pipeline});
  }
  return stages;
}

double StageDenseParameters(const ModelConfig& model, const Stage& stage) {
  const bool shares = stage.embeds && stage.predicts && model.tied_embeddings;
  const double embeddings = (stage.embeds ? 1 : 0) + (stage.predicts ? 1 : 0) - (shares ? 1 : 0);
  return stage.layers * AttentionParameters(model) + stage.dense_layers() * DenseFfnParameters(model) +
         stage.moe_layers * (SharedExpertParameters(model) + RouterParameters(model)) + embeddings * Vocabulary(model);
}

double StageExpertParameters(const ModelConfig& model, const Stage& stage) {
  return static_cast<double>(stage.moe_layers) * model.experts * ExpertParameters(model);
}

AttentionWidths WidthsOf(const ModelConfig& model) {
  const double heads = model.heads, kv_heads = model.kv_heads;
  const LatentAttention& latent = model.latent_attention;
  if (latent.kv_rank == 0) {
    const double query = heads * model.head_dim, key = kv_heads * model.head_dim;
    return {.query_key = query, .value = query, .projected = 2 * query + 2 * key, .passed = 2 * key};
  }
  const double query = heads * (latent.nope_head_dim + latent.rope_head_dim), value = heads * latent.value_head_dim;
  return {.query_key = query, .value = value, .projected = 2 * query + 2 * value, .passed = query + value};
}

double ModelFlopsPerToken(const ModelConfig& model, int sequence_length) {
  const AttentionWidths widths = WidthsOf(model);
  const double moe_layers = model.moe_layers(), dense_layers = model.layers() - moe_layers;
  const double visited =
      model.layers() * AttentionParameters(model) + dense_layers * DenseFfnParameters(model) +
      moe_layers * (model.top_k * ExpertParameters(model) + SharedExpertParameters(model) + RouterParameters(model)) +
      Vocabulary(model);
  return 2 * visited + 2.0 * model.layers() * sequence_length * (widths.query_key + widths.value);
}

}  // namespace moeplan::planner
