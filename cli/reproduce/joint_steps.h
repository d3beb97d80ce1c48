// Whole training steps with what each paper has, beside the best of all of it (planner/rules/step_alternatives.h).
#pragma once

#include "models/status.h"
#include "moeplan/v1/report.pb.h"

namespace moeplan::cli {

// How many times as long the steps of shipped models on shipped hardware take with each paper's choice as with the best
// of all. Predicted, not run.
StatusOr<v1::ReproducedTable> JointSteps();

}  // namespace moeplan::cli
