// Device memory of the fullest rank of a layout: MoNTA's weights and activations (models/memory) and the buffers of the
// schedule, summed over what a pipeline stage holds.
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
//                  of its dense layers and experts; with ZeRO-3 also what other replicas hold of one layer
//   kept_bytes     what its layers keep of as many micro-batches as are on their way in 1F1B, min(m, PP - stage)
//   running_bytes  buffers of the MoE layer that runs, beyond what it keeps; of recomputation, attention of the layer
//                  that runs
//   logit_bytes    FP32 logits of a micro-batch on the last stage
// Workspace of dense kernels, of collectives and of the allocator is not counted.
RankMemory RankMemoryOf(const LayoutRequest& request, const LayoutPoint& point, const MoeMemory& moe);

}  // namespace moeplan::planner
