// The time of one training step of a layout: blocks of layers from what they consist of (models/step), MoE layers as
// they were planned, stages one after the other in 1F1B.
//
// Per micro-batch and stage, forward:
//   attention     projections and scores; with sequence parallelism an all-gather and a reduce-scatter of the tokens
//                 over TP, else an all-reduce. Contexts: keys and values go round (as an all-gather over CP) while the
//                 scores are computed, and only what is longer counts; or queries, keys, values and outputs are
//                 exchanged by all-to-all, with nothing beside it
//   dense network the same without scores
//   MoE layer     what PlanLayer's best candidate takes, its gathers over TP included; the shared expert is in it where
//                 it may run beside the exchange, else a part of its own
//   elementwise   what moves memory around all these
//   embedding     on the first stage, summed over TP; logits and loss on the last, whose input is gathered over TP
//   neighbours    with PP, the tokens are passed on and their gradients back, with nothing beside them
// Exchanges over TP have nothing beside them; where they may overlap, the products of their block hide all but the
// first of TP pieces. Layers of a window have attention of their own; those that predict further tokens (MTP) lie on
// the last stage, each with a product of two rows, a lookup, and logits. Backward, each linear layer has two products,
// and attention its own kernel; where the profile has neither, compute twice. Sequence parallelism gathers its input
// once more; what contexts exchanged goes back the same way, keys and values once more before. Selective recomputation
// adds the scores, full the whole forward pass. Masks are causal; a profile without attention prices all scores. The
// host launches the kernels and collectives of all of it one after another, ahead of the GPU: where the profile has
// HOST_LAUNCH and that takes longer than they run, forward and backward of a micro-batch take as long as the host.
// Under Lancet's passes both passes of a micro-batch are shorter by what the plan of the stage's graph gains.
// Step = pipeline + gradients + optimizer. Pipeline: m times the slowest stage, and every other once, by v
// virtual stages as fast; for equal stages (m + (p - 1)/v)·t. FP32 gradients of dense layers over CP·DP and of experts
// over their replicas (all-reduce; with ZeRO reduce-scatter, and all-gather of the weights, after the step or, ZeRO-3,
// before each pass of each micro-batch). Where they may run beside the last backward pass, they are cut into one slice
// a layer and have the lowest priority, EP > PP > CP > DP, so they hide only behind that part of it in which nothing
// else communicates, one slice late: max(slice, all - window·(layers - 1)/layers). Else they follow it whole.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "models/layout/layout_answer.h"
#include "models/step/two_batches.h"
#include "planner/layout/cost_book.h"
#include "planner/layout/layout_space.h"

namespace moeplan::planner {

// Of one MoE layer on one micro-batch.
struct MoeTime {
  double forward_s = 0;
  double backward_s = 0;
  double backward_communication_s = 0;  // Sum over the collectives in it.
  // How long its tasks take one by one: exchanges of rows with their experts, gradients of experts' weights, all else.
  double forward_exchange_s = 0, backward_exchange_s = 0;
  double weight_gradient_s = 0;
  double forward_rest_s = 0, backward_rest_s = 0;
  int forward_launches = 0, backward_launches = 0;  // Of kernels and collectives, by the host.
};

// How much shorter one micro-batch's way through a pipeline stage and back is under Lancet's passes
// (planner/lancet/stage_gains.h), whose ranges are the forward pass's and whose weight gradients are the backward's.
struct StageGain {
  double ranges_s = 0, weight_gradients_s = 0;
  double more_launches = 0;  // By the host, for the parts of ranges.
  double more_bytes = 0;     // At the most, for parts beside what they are put together to and what waits longer.

  // Adds another virtual stage of the same rank, of which one runs at a time.
  void Add(const StageGain& other) {
    ranges_s += other.ranges_s, weight_gradients_s += other.weight_gradients_s, more_launches += other.more_launches;
    more_bytes = std::max(more_bytes, other.more_bytes);
  }
  friend bool operator==(const StageGain&, const StageGain&) = default;
};

struct StepTime {
  double step_s = 0;
  double bubble = 0;
  double gradient_s = 0;  // Exchanged with nothing beside it.
};

// What takes the time of a step.
enum class StepPart {
  kAttention,      // Projections and scores.
  kDenseNetworks,  // Products of feed-forward networks without experts.
  kMoeLayers,      // As planned, their exchanges with them.
  kSharedExperts,  // Where they run after the routed ones.
  kElementwise,    // Norms, rotary embedding, activations, residuals, the embedding.
  kLogits,         // The last product, on the last stage.
  kLoss,
  kTensorExchange,   // Over TP, around attention and dense networks.
  kContextExchange,  // Keys and values over CP.
  kNeighbours,       // Between pipeline stages.
  kWeights,          // Gathered before each pass (ZeRO-3).
  kGradients,        // Summed over replicas, and the weights gathered after the step (ZeRO-1 and -2).
  kOptimizer,
  kHost,    // Launching kernels; exposed is what no kernel hides.
  kBubble,  // Waiting for other stages.
};
inline constexpr int kStepParts = 15;
std::string_view Name(StepPart part);  // "attention", "denseNetworks", ...

// Of one part in a step.
struct PartTime {
  double forward_s = 0, backward_s = 0;  // How long a rank of the slowest stage is at it, hidden or not.
  double exposed_s = 0;                  // How much longer the step is for it.

  void Add(double forward, double backward, double exposed, double times) {
    forward_s += times * forward, backward_s += times * backward, exposed_s += times * exposed;
  }
};

class PartTimes {
 public:
  PartTime& operator[](StepPart part) { return times_[static_cast<size_t>(part)]; }
  const PartTime& operator[](StepPart part) const { return times_[static_cast<size_t>(part)]; }

 private:
  std::array<PartTime, kStepParts> times_ = {};
};

// A step and what it consists of: all exposed_s sum to step_s.
struct StepParts {
  StepTime time;
  PartTimes parts;
  std::optional<OverlappedLayers> overlap;  // Absent: nothing runs beside another micro-batch.
  StageGain hidden;                         // In all micro-batches of the slowest stage.
};

// Costs that `book` lacks count 0 and are missing there. `gains` has one for each stage, or none at all: time that
// ranges hide is taken off the exchanges of the forward pass, each in proportion to its time, and time that weight
// gradients hide off the MoE layers; gradients and weights of ZeRO-3 hide behind what is left of the passes.
StepTime PriceStep(const LayoutRequest& request, const LayoutPoint& point, const MoeTime& moe, CostBook& book,
                   std::span<const StageGain> gains = {});
StepParts PriceStepParts(const LayoutRequest& request, const LayoutPoint& point, const MoeTime& moe, CostBook& book,
                         std::span<const StageGain> gains = {});

// No step of the layout takes less, whatever its MoE layers do: of these only compute is sure without planning them,
// their experts' flops at the best rate of any size.
double LeastStepS(const LayoutRequest& request, const LayoutPoint& point, CostBook& book);

// Model flops utilisation: three times the forward flops of the step's tokens (models kept, nothing recomputed), over
// what the GPUs could do in that time. 0 where the peak is unknown.
double ModelFlopsUtilisation(const LayoutRequest& request, double step_s, double peak_flops_per_s);

}  // namespace moeplan::planner
