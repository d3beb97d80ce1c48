// Shortens exchanges in the graph of one micro-batch (GraphOfRun) to what a step waits for them: `step` lets some run
// beside computation, and in the graph they run beside nothing. Seconds; pure.
#pragma once

#include "models/layout/layout_answer.h"
#include "models/training/training_graph.h"
#include "planner/lancet/graph/transformer.h"
#include "planner/layout/layout_space.h"

namespace moeplan::planner {

// Shortens exchanges to what planner/layout/step_time.cc counts of them: those of keys and values to what they take
// beyond the scores and, where the request overlaps them, those over tensor-parallel ranks to what they take beyond the
// products of their block, but for one piece of as many as there are such ranks. `graph` is the run's, not cut into
// pieces.
void HideExchanges(const LayoutRequest& request, const LayoutPoint& point, const LayerRun& run, TrainingGraph& graph);

}  // namespace moeplan::planner
