// Says what Lancet's passes would save a layout that a training system runs in the order it has.
#pragma once

#include <string>

#include "models/cost/profile.h"
#include "models/layout/step_answer.h"
#include "models/status.h"
#include "planner/stop_signals.h"

namespace moeplan::planner {

// One sentence where the step under the passes fits and is shorter by more than 1 %; empty elsewhere, also where the
// layout has what no graph can have (planner/lancet/graph_layout.h), or computes activations again, which the module
// refuses. `question` is the layout, `step_s` its step.
//
// kCancelled. Requires a question that PriceLayout answers, and a validated profile. Pure.
StatusOr<std::string> ScheduledText(const StepQuestion& question, double step_s, const Profile& profile,
                                    const StopSignals& stop = {});

}  // namespace moeplan::planner
