#include "planner/layout/stages.h"

#include <algorithm>
#include <cstddef>

#include "models/check.h"
#include "models/cost/operation.h"
#include "planner/layout/precision.h"

namespace moeplan::planner {
namespace {

double Vocabulary(const ModelConfig& model) { return static_cast<double>(model.vocab) * model.model_dim; }

// Counts those that are set among so many layers in a row, from the given one on.
int CountIn(const std::vector<bool>& layers, int first, int count) {
  if (layers.empty()) return 0;
  return static_cast<int>(std::count(layers.begin() + first, layers.begin() + first + count, true));
}

// How many of so many layers full recomputation computes again.
int AgainOf(const LayoutRequest& request, int layers) {
  if (request.recompute != Recompute::kFull) return 0;
  return request.recompute_layers == 0 ? layers : std::min(request.recompute_layers, layers);
}

// The share of the scores of whole sequences that a window leaves.
double SeenShare(int window, int sequence) {
  KernelShape shape = {.heads = 1, .query_key_dim = 1, .value_dim = 1, .sequence = sequence};
  const double whole = AttentionFlops(shape);
  shape.window = window < sequence ? window : 0;
  return AttentionFlops(shape) / whole;
}

// The product from a row and the next token's to one (DeepSeek-V3 §2.2, M_k).
double JoinParameters(const ModelConfig& model) { return 2.0 * model.model_dim * model.model_dim; }

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
  int first = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    Stage& stage = stages[i % stages.size()];
    stage.index = static_cast<int>(i % stages.size());
    stage.layers += layers[i];
    stage.moe_layers += CountIn(model.moe_layer, first, layers[i]);
    stage.windowed_layers += CountIn(model.windowed_layer, first, layers[i]);
    // Megatron counts them by virtual stage (recompute_num_layers).
    const int again = AgainOf(request, layers[i]);
    stage.again.layers += again;
    stage.again.inputs += (again + request.recompute_chunk - 1) / request.recompute_chunk;
    stage.again.together = std::max(stage.again.together, std::min(again, request.recompute_chunk));
    stage.again.moe_layers += CountIn(model.moe_layer, first, again);
    stage.again.windowed_layers += CountIn(model.windowed_layer, first, again);
    first += layers[i];
  }
  MOEPLAN_CHECK(first == model.layers() && model.encoder_layers == 0);
  stages.front().embeds = true;
  stages.back().predicts = true;
  stages.back().next_tokens = request.next_tokens;
  stages.back().again.next_tokens = AgainOf(request, request.next_tokens);
  return stages;
}

bool NextTokenLayersHaveExperts(const ModelConfig& model) { return !model.moe_layer.empty() && model.moe_layer.back(); }

double StageDenseParameters(const ModelConfig& model, const Stage& stage) {
  const bool looks_up = stage.embeds || stage.next_tokens > 0;
  const bool shares = looks_up && stage.predicts && model.tied_embeddings;
  const double embeddings = (looks_up ? 1 : 0) + (stage.predicts ? 1 : 0) - (shares ? 1 : 0);
  const int moe_layers = stage.moe_layers + (NextTokenLayersHaveExperts(model) ? stage.next_tokens : 0);
  const int layers = stage.layers + stage.next_tokens;
  return layers * AttentionParameters(model) + (layers - moe_layers) * DenseFfnParameters(model) +
         moe_layers * (SharedExpertParameters(model) + RouterParameters(model)) + embeddings * Vocabulary(model) +
         stage.next_tokens * JoinParameters(model);
}

double StageExpertParameters(const ModelConfig& model, const Stage& stage) {
  const int moe_layers = stage.moe_layers + (NextTokenLayersHaveExperts(model) ? stage.next_tokens : 0);
  return static_cast<double>(moe_layers) * model.experts * ExpertParameters(model);
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

double PassedBytes(const ModelConfig& model, const RankSlice& slice) {
  const double tensor = slice.tensor_parallel;
  const double ranks = model.latent_attention.kv_rank > 0 ? tensor : std::min<double>(tensor, model.kv_heads);
  return slice.tokens * slice.bytes_per_element * WidthsOf(model).passed / ranks;
}

HeadExchangeBytes HeadExchangeBytesOf(const ModelConfig& model, const RankSlice& slice) {
  const AttentionWidths widths = WidthsOf(model);
  const double row_bytes = slice.tokens * slice.bytes_per_element, tensor = slice.tensor_parallel;
  const double passed_bytes = PassedBytes(model, slice);
  // Keys are as wide as queries' share of them.
  const double key_bytes = passed_bytes * widths.query_key / (widths.query_key + widths.value);
  return {.queries = row_bytes * widths.query_key / tensor,
          .keys = key_bytes,
          .values = passed_bytes - key_bytes,
          .outputs = row_bytes * widths.value / tensor};
}

double GatheredShare(const LayoutRequest& request) {
  return request.precision == Precision::kBf16 ? 1 : OperandBytes(request.precision) / request.bytes_per_element;
}

double ModelFlopsPerToken(const ModelConfig& model, int sequence_length, int next_tokens) {
  const AttentionWidths widths = WidthsOf(model);
  const double layers = model.layers() + next_tokens;
  const double moe_layers = model.moe_layers() + (NextTokenLayersHaveExperts(model) ? next_tokens : 0);
  const double visited =
      layers * AttentionParameters(model) + (layers - moe_layers) * DenseFfnParameters(model) +
      moe_layers * (model.top_k * ExpertParameters(model) + SharedExpertParameters(model) + RouterParameters(model)) +
      (1 + next_tokens) * Vocabulary(model) + next_tokens * JoinParameters(model);
  const double windowed =
      static_cast<double>(std::count(model.windowed_layer.begin(), model.windowed_layer.end(), true));
  const double whole_layers = layers - windowed * (1 - SeenShare(model.window, sequence_length));
  return 2 * visited + 2.0 * whole_layers * sequence_length * (widths.query_key + widths.value);
}

}  // namespace moeplan::planner
