// Turns a layout as `step` reads it, or a row of `layout`, into the options of the training graph of one of its ranks.
//
// A graph is one micro-batch of a step. Degrees, micro-batch, stages, ZeRO, sequence parallelism, precisions, capacity,
// recomputation, stored scores, further tokens, contexts, dispatchers and pieces of tensor exchanges are taken over.
// A plan of the graph says how a MoE layer is cut and beside what it runs, so `schedule`, `plan`, `overlapGradients` and
// `overlapSharedExperts` are not read. Pure.
#pragma once

#include "models/layout/step_answer.h"
#include "models/status.h"
#include "planner/lancet/model_graph.h"

namespace moeplan::planner {

// OK where graphs have what the layout has. kInvalidInput as GraphOptionsOf's.
Status CheckGraphHas(const LayoutRequest& request);

// kInvalidInput, naming the field, what was found and what was expected: the layout runs another micro-batch beside
// this one, which a graph does not have, or its degrees do not fill the GPUs. Rules of degrees are TrainingGraphOf's
// to check.
StatusOr<ModelGraphOptions> GraphOptionsOf(const StepQuestion& question);

}  // namespace moeplan::planner
