// Device memory of the fullest rank of a layout: weights and states (models/memory), what Megatron Core keeps of a
// forward pass (models/step/kept_memory) and the buffers of the schedule, summed over what a pipeline stage holds.
#pragma once

#include "models/layout/layout_answer.h"
#include "planner/layout/layout_space.h"

namespace moeplan::planner {

// What the MoE layer's schedule adds. The defaults are the least that any schedule can need.
struct MoeMemory {
  double buffer_bytes = 0;  // Of the layer that runs, forward and backward.
  double copies = -1;       // Rows for each token (ExpertCopies); below 0: k, or k·f where f is less than 1.
};

// Of the stage that needs most, the first of equal ones:
//   weight_bytes, gradient_bytes, optimizer_bytes
//                  of its dense layers and experts, gradients in FP32; with ZeRO-3 also what other replicas hold of one
//                  layer's weights
//   kept_bytes     what its layers keep of as many micro-batches as are on their way in 1F1B, min(m, PP - stage), or
//                  more with virtual stages
//   logit_bytes    HeadBytes for each token that is predicted, on the last stage
//   running_bytes  of the layer that runs, beyond what it keeps and, since no layer runs while the loss is computed,
//                  beyond logit_bytes: what is computed again, and the longer of the buffers of its schedule and of the
//                  rows that sequence parallelism gathers
//   other_bytes    SpareGradientBytes
// What the allocator cannot use, 1 to 8 % in the steps of docs/truth.md, and the context of CUDA and of collectives are
// not counted.
RankMemory RankMemoryOf(const LayoutRequest& request, const LayoutPoint& point, const MoeMemory& moe);

}  // namespace moeplan::planner
