// What each pipeline stage of a model consists of.
#pragma once

#include <algorithm>
#include <vector>

#include "models/layout/layout_answer.h"
#include "models/model/model_config.h"
#include "models/step/layer_work.h"

namespace moeplan::planner {

// What one rank of a pipeline holds: a run of layers, with virtual stages one of each round. The embedding goes to the
// first, the logits to the last.
struct Stage {
  int index = 0;
  int layers = 0;  // Each with attention.
  int moe_layers = 0;
  int windowed_layers = 0;  // Whose attention has a window.
  int next_tokens = 0;      // Layers that predict further tokens, not counted in `layers`; on the last stage.
  // Full recomputation computes so many of them again.
  struct Again {
    int layers = 0, moe_layers = 0, windowed_layers = 0, next_tokens = 0;
    int inputs = 0;    // Kept for those of `layers`: one for each that are computed again together.
    int together = 0;  // The most that are.

    friend bool operator==(const Again&, const Again&) = default;
  } again;
  bool embeds = false;
  bool predicts = false;

  int dense_layers() const { return layers - moe_layers; }
  friend bool operator==(const Stage&, const Stage&) = default;
};

// How many layers each virtual stage has, in pipeline order: the request's, or as even as possible, the first and the
// last getting more only when all others have, since they have the embedding and the logits.
std::vector<int> LayersOfStages(const LayoutRequest& request, int pipeline);

// One for each rank of the pipeline. Requires a legal layout (layout_rules.h) and a model without encoder.
std::vector<Stage> StagesOf(const LayoutRequest& request, int pipeline);

// Of the whole stage: everything but the experts, the embedding's matrix once on each stage that reads it, as layers
// that predict further tokens do, too; the experts. A layer that predicts a further token has the parts of the model's
// last layer, and a product from two rows to one.
double StageDenseParameters(const ModelConfig& model, const Stage& stage);
double StageExpertParameters(const ModelConfig& model, const Stage& stage);

// Elements of one token: queries and keys of all heads, with the values and outputs (models/memory/activations.h: A);
// keys and values that contexts pass on.
struct AttentionWidths {
  double query_key = 0;  // Of the queries alone, as wide as the keys of all heads.
  double value = 0;      // Of the outputs.
  double projected = 0;  // A
  double passed = 0;     // Of one key and one value of each own head, of all tensor-parallel ranks together.
};
AttentionWidths WidthsOf(const ModelConfig& model);

// Bytes of the keys and values that a rank passes to other contexts: of its tokens, of at least one head.
double PassedBytes(const ModelConfig& model, const RankSlice& slice);

// Bytes of what contexts trade by all-to-all before and behind attention: of a rank's tokens, of each own head.
struct HeadExchangeBytes {
  double queries = 0, keys = 0, values = 0, outputs = 0;
};
HeadExchangeBytes HeadExchangeBytesOf(const ModelConfig& model, const RankSlice& slice);

// The bytes of rows that are gathered for a product, over those of the rows between blocks: 1 in BF16. In less they are
// gathered as the product reads them, with their scales (Transformer Engine). Reads the request's precision and
// bytes_per_element.
double GatheredShare(const LayoutRequest& request);

// How long a step waits for exchanges beside computation of `beside_s`; `least`: the share of them beside which nothing
// runs, such as the first piece of a ring exchange.
inline double WaitedS(double exchange_s, double beside_s, double least = 0) {
  return std::max(least * exchange_s, exchange_s - beside_s);
}

// Flops of the forward pass for one token of a sequence, all scores counted (no causal half, but for what a window
// leaves out), the way MFU is usually given: two for each parameter that the token visits, and 2·s·(query_key + value)
// for each attention. `next_tokens`: as Stage's, each of which reads the vocabulary once more.
double ModelFlopsPerToken(const ModelConfig& model, int sequence_length, int next_tokens = 0);

// Whether the last layer has experts, which layers that predict further tokens are like.
bool NextTokenLayersHaveExperts(const ModelConfig& model);

}  // namespace moeplan::planner
