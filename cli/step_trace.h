// A priced step for Perfetto.
#pragma once

#include <string>

#include "models/timeline/task_timing.h"
#include "moeplan/v1/step.pb.h"

namespace moeplan::cli {

// JSON in the Trace Event Format, in microseconds: the step as a rank of the slowest stage goes through it. Thread
// "step" has one slice after another, which add up to the step: the pipeline fills (half of the bubble), each
// micro-batch goes forward and backward part by part, the pipeline drains, and what follows the last backward pass.
// Thread "hidden" has what runs beside it. 1F1B would interleave passes of several micro-batches; their sums are the
// same. Micro-batches from the 257th on are one slice. A second process has `beside`, where it is not empty: layers of
// two micro-batches beside each other, compute and exchanges (planner::OverlapTimeline).
std::string StepTrace(const v1::StepResult& step, int micro_batches, const Timeline& beside);

}  // namespace moeplan::cli
