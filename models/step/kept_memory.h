// Bytes that one rank keeps of one micro-batch from the forward pass of a part of a transformer to its backward pass,
// and what else it holds then: tensor by tensor, as Megatron Core with Transformer Engine saves them, without dropout.
// models/step/layer_work.h lists the kernels between them. Whole layers of a plan are models/memory's. Pure.
#pragma once

#include "models/model/model_config.h"
#include "models/step/layer_work.h"
#include "models/step/recompute.h"

namespace moeplan {

struct Keeping {
  bool layer_input_alone = false;  // Full recomputation: all but a layer's input is computed again.
  RecomputeModules again;          // Selective: what of a layer is not kept.
  bool stores_scores = false;      // Else FlashAttention, which keeps a row's logarithm of its sum in FP32.
  // Bytes of an element that a linear layer reads. It is kept as the product reads it: in less than BF16, with scales,
  // and beside what else is kept of the same values. 0: as all others.
  double linear_input_bytes = 0;
};

// Input and output of the norm; queries, keys and values of the rank's heads, and what attention makes of them; of
// latent attention also the latent vectors before and after their norms. Contexts that exchange heads keep the output
// before and after the exchange. With full recomputation the layer's input alone; kMlaUpProj leaves out queries, keys
// and values, kLayerNorm the norm's output.
double AttentionKeptBytes(const ModelConfig& model, const RankSlice& slice, const Keeping& keeping);

// Input and output of the norm, what is before and after the activation; the latter is what kMlp leaves out.
double DenseKeptBytes(const ModelConfig& model, const RankSlice& slice, const Keeping& keeping);

// The same of a layer with experts, shared ones too: the rows that its rank's experts read are kept once more, and the
// router's scores, probabilities and map. kMoeAct leaves out what is after the experts' activation, kMoe all behind the
// norm, kSharedExperts what these keep. `copies`: rows for each token of the tensor-parallel group; `shards`: N_ESP.
double MoeKeptBytes(const ModelConfig& model, const RankSlice& slice, double copies, int shards,
                    const Keeping& keeping);

// What a layer that predicts a further token keeps before its attention: both rows and their norms (JoinWork).
double JoinKeptBytes(const ModelConfig& model, const RankSlice& slice);

// What the last stage holds when the loss has been computed: logits, which a fused loss turns into their gradients in
// place; rows before and after the last norm, and gradients of the latter, whole where tensor parallelism gathers them;
// and the weight gradient that autograd is handed (SpareGradientBytes).
double HeadBytes(const ModelConfig& model, const RankSlice& slice);

// Gradients of weights are added to FP32 buffers by the product that computes them; autograd is handed a tensor of the
// weight's shape instead, one of each shape, which stays (Transformer Engine, get_dummy_wgrad). Of the linear layers
// of a stage with or without dense layers and experts, `shards` as above.
double SpareGradientBytes(const ModelConfig& model, const RankSlice& slice, bool has_dense, bool has_experts,
                          int shards);

}  // namespace moeplan
