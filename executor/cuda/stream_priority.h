// Which communication goes first on a card: the order EP > PP > CP > DP (design.md §4). Pure
// functions; no CUDA header, so the CPU tests them.
#pragma once

#include "executor/device.h"

namespace moeplan::executor::cuda {

// Highest first. What the layer itself talks over is kExpert: compute waits for all of it.
enum class Traffic { kExpert, kPipeline, kContext, kData };

// As cudaDeviceGetStreamPriorityRange tells them: the smaller the number, the earlier. `least` is that of compute.
struct PriorityRange {
  int least = 0, greatest = 0;
};
// Each traffic before compute and before those below it, as long as the card has priorities left; the lowest ones share
// the last that is still before compute, or compute's own where a card has no other.
int PriorityOf(Traffic traffic, const PriorityRange& range);
// kHigh: as for kExpert, whose waits are the longest; kNormal: compute's.
int PriorityOf(StreamPriority priority, const PriorityRange& range);

}  // namespace moeplan::executor::cuda
