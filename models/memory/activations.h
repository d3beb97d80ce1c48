// Bytes of activations that one rank keeps from the forward pass of a layer to its backward pass: MoNTA, equation 2 and
// Table 4, generalised to any hidden dimension, gated experts, grouped or latent attention, and N_ESP ≠ t.
//
// What an element-by-element reading of the printed coefficients says (b·s·h times; k = 1 and H = 4h give Megatron's
// 34 + 5as/h), with bpe for its 2 bytes and 1 byte for each dropout mask:
//   attention      (2·bpe + 1)      input of the norm and of the projections, mask after the last: 5
//                  bpe·A/h / t      queries, keys, values and the input of the last projection, A elements in all: 8
//                  (2·bpe + 1)·a·s/h / t   softmax, its mask, what is left of it: 5as/h
//   feed-forward   (2·bpe + 1)·k    input of the norm and of the first matrix, mask after the last: 5k
//                  bpe·n·H/h·k / t  n vectors of H: 2 around the nonlinearity, 3 where gated: 16k
// Sequence parallelism divides the rest by t too. Selective recomputation keeps none of the scores, full recomputation
// the layer's input alone. A layer's total is that of its attention and of its feed-forward network. Pure.
#pragma once

#include "models/workload/workload.h"

namespace moeplan {

struct ActivationSaving {
  int tensor_parallel = 1;  // t
  bool sequence_parallel = false;
  Recompute recompute = Recompute::kNone;
  bool stores_scores = true;  // False: FlashAttention, which keeps one FP32 number for each query and head instead.
  int bytes_per_element = 2;
};

struct AttentionShape {
  double tokens = 0;  // b·s that a tensor-parallel group holds.
  double keys = 0;    // Tokens that each attends to: the whole sample, also where contexts cut it.
  int model_dim = 0;  // h
  int heads = 0;      // a
  // A: elements of a token's queries, keys, values and attention outputs; 4h where all heads have keys of their own.
  double projected_dim = 0;
};
double AttentionActivationBytes(const AttentionShape& shape, const ActivationSaving& saving);

// A dense network, or the experts. Their rows without sequence parallelism are those that arrive at a rank: each goes
// to all `shards`, so 5k is divided by t / N_ESP (the paper has N_ESP = t).
struct FeedForwardShape {
  double tokens = 0;  // b·s that a tensor-parallel group holds.
  // Rows for each token: 1 of a dense network, k·f of experts, times N_MP where a schedule has every tensor-parallel
  // rank send the same rows (BASELINE, PIPELINE).
  double copies = 1;
  int shards = 1;  // N_ESP; t of a dense network.
  int model_dim = 0;
  double hidden_dim = 0;  // H, uncut.
  int matrices = 2;       // 3: gated.
};
double FeedForwardActivationBytes(const FeedForwardShape& shape, const ActivationSaving& saving);

}  // namespace moeplan
