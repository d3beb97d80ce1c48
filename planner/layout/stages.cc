#include "planner/layout/stages.h"

#include <algorithm>
#include <cstddef>

#include "models/check.h"

namespace moeplan::planner {
namespace {

double Vocabulary(const ModelConfig& model) { return static_cast<double>(model.vocab) * model.model_dim; }

}  // namespace

std::vector<int> LayersOfStages(const LayoutRequest& request, int pipeline) {
  if (!request.stages.empty()) return request.stages;
  const int count = pipeline * request.virtual_stages;
  std::vector<int> layers(static_cast<size_t>(count), request.model.layers() / count);
  int rest = request.model.layers() % count;
  for (int i = 1; i + 1 < count && rest > 0; ++i, --rest) ++layers[i];
  if (rest > 0) ++layers.front(), --rest;
  if (rest > 0) ++layers.back();
  return layers;
}

std::vector<Stage> StagesOf(const LayoutRequest& request, int pipeline) {
  const ModelConfig& model = request.model;
  const std::vector<int> layers = LayersOfStages(request, pipeline);
  MOEPLAN_CHECK(pipeline >= 1 && layers.size() == static_cast<size_t>(pipeline) * request.virtual_stages);
  std::vector<Stage> stages(static_cast<size_t>(pipeline));
  auto first = model.moe_layer.begin();
  for (size_t i = 0; i < layers.size(); ++i) {
    Stage& stage = stages[i % stages.size()];
    stage.index = static_cast<int>(i % stages.size());
    stage.layers += layers[i];
    stage.moe_layers += static_cast<int>(std::count(first, first + layers[i], true));
    first += layers[i];
  }
  MOEPLAN_CHECK(first == model.moe_layer.end() && model.encoder_layers == 0);
  stages.front().embeds = true;
  stages.back().predicts = true;
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
