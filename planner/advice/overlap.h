// Says what exchanges of experts beside another micro-batch gain for a layout, or why they gain nothing.
#pragma once

#include <string>

#include "models/cost/profile.h"
#include "models/layout/step_answer.h"
#include "models/status.h"
#include "models/timeline/task_timing.h"
#include "planner/stop_signals.h"

namespace moeplan::planner {

struct OverlapReport {
  // The layout with such exchanges; with two virtual stages where a pipeline of one each cannot have them.
  StepQuestion with;
  // Steps with and without, and how many times as long the one without takes. Meaningless where `refused` is not empty.
  StepAnswer with_step, without_step;
  StepRatio gain;
  std::string refused;  // Why the layout cannot have them; empty: it can.
  std::string text;     // All of it as one paragraph.
};

// A layout that has such exchanges is compared with itself without them, any other with itself with them.
//
// kInvalidInput: the layout itself has no price or breaks a rule, or the model has no experts. kCancelled. Requires a
// validated profile. Pure.
StatusOr<OverlapReport> ExplainOverlap(const StepQuestion& question, const Profile& profile,
                                       const StopSignals& stop = {});

// So many layers of both micro-batches as they run beside each other, alone on the GPU. Requires layers >= 1. Pure.
Timeline OverlapTimeline(const OverlappedLayers& overlap, int layers);

}  // namespace moeplan::planner
