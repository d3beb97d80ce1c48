// The MoE layers of two micro-batches, one of which goes forward while the other goes back, so that the exchanges of
// each run beside the compute of the other (Megatron Core's overlapped 1F1B, torchtitan's two chunks): as a task graph
// of times that are known.
//
// A layer forward: attention, dispatch, experts, combine. Backward: the same from behind, its exchanges the gradients'.
// Compute and exchanges are a stream each and take turns, so that beside each exchange stands compute of the other
// batch:
//
//   compute    attention'  experts_b  [weights_b]  experts'  attention_b [weights_b]
//   exchanges  combine_b   dispatch'  dispatch_b             combine'
//
// where ' is the layer that goes forward and _b the one that goes back, the last first. Weight gradients that wait run
// after the exchange that follows the gradient of the input has begun; else they are part of that gradient's task.
// Tasks carry no operation, so the graph is to be played alone (models/timeline/timeline.h). Values only; pure.
#pragma once

#include <vector>

#include "models/schedule/task_graph.h"
#include "models/timeline/price.h"

namespace moeplan {

// The halves of one layer of one micro-batch, alone on the GPU, in seconds.
struct HalfLayers {
  // Attention and everything else around the experts; the backward pass is without the gradients of weights.
  double attention_forward_s = 0, attention_backward_s = 0, attention_weights_s = 0;
  // The experts and the permutations of their rows, likewise.
  double experts_forward_s = 0, experts_backward_s = 0, experts_weights_s = 0;
  double dispatch_s = 0, combine_s = 0;            // Exchanges of the forward pass.
  double combine_back_s = 0, dispatch_back_s = 0;  // Exchanges of gradients.
  // How many times longer compute takes beside an exchange, and an exchange beside compute. At least 1.
  double compute_slowdown = 1, exchange_slowdown = 1;

  // One batch after the other.
  double serial_s() const;
  double compute_s() const;
  double exchange_s() const;

  friend bool operator==(const HalfLayers&, const HalfLayers&) = default;
};

// How the layers of a rank run beside another micro-batch in a step.
struct OverlappedLayers {
  HalfLayers layer;
  double layer_alone_s = 0;  // One layer of one micro-batch, there and back, with nothing beside it.
  int layers = 0, passes = 1;
  bool delays_weight_gradients = false;
  int micro_batches = 0;
  double pairs = 0;     // Micro-batches that have a partner; the others warm the pipeline up.
  double hidden_s = 0;  // How much shorter the step is. Below 0: longer.

  friend bool operator==(const OverlappedLayers&, const OverlappedLayers&) = default;
};

struct PricedTwoBatches {
  TaskGraph graph;
  std::vector<TaskPrice> prices;
};

// So many layers of both batches, named "attention.2", "attention_back.2" and so on.
PricedTwoBatches BuildTwoBatches(const HalfLayers& layer, int layers, bool delays_weight_gradients);

// The time of so many layers of both, beyond some from the rate at which more of them take longer.
double TwoBatchesS(const HalfLayers& layer, int layers, bool delays_weight_gradients);

// Returns how much less than `alone_s` for each layer a rank's layers take beside another micro-batch, in as many
// passes as the rank has virtual stages: the first layer of a pass has no layer before it whose weight gradients hide
// its exchanges. Below 0: they take longer. Requires passes >= 1.
double HiddenS(const HalfLayers& layer, double alone_s, int layers, int passes, bool delays_weight_gradients);

}  // namespace moeplan
