// How much shorter a micro-batch's way through each pipeline stage is under Lancet's passes, and how much more memory
// it takes.
//
// Each virtual stage of a rank has a training graph of one micro-batch (GraphOfRun in planner/lancet/model_graph.h),
// which is planned by both passes (planner/rules/lancet.h) with the profile's contention and boundaries of ranges. The
// backward pass begins when the forward pass is over, so what ranges gain and what weight gradients gain are the
// differences of both passes between the plan and the given order. Sends of virtual stages take no time, since other
// micro-batches hide them.
#pragma once

#include <vector>

#include "models/cost/profile.h"
#include "models/layout/step_answer.h"
#include "models/status.h"
#include "models/timeline/pricer.h"
#include "planner/layout/layout_space.h"
#include "planner/layout/step_time.h"
#include "planner/stop_signals.h"

namespace moeplan::planner {

// OK where the question's stages have such graphs. kInvalidInput: a field, which is named, asks for what no graph has
// (planner/lancet/graph_layout.h), or the model has no layer of experts.
Status CheckLancet(const StepQuestion& question);

// Virtual stages of more layers than this are not planned whole: their gain goes on as it grows from fewer layers to
// more of the same (tests hold that to 1 % of plans of whole models).
inline constexpr int kWholeLayers = 12;

// One for each stage of the pipeline. `profile` is on the cluster of the request's GPUs. What was extrapolated goes to
// `notes`. kNotFound: the profile lacks a cost. kInvalidInput: the graph of a stage has more instructions than a plan
// takes. kCancelled. Requires what CheckLancet passes, and a point of it. Pure.
StatusOr<std::vector<StageGain>> GainsOfStages(const LayoutRequest& request, const LayoutPoint& point,
                                               const Profile& profile, PriceNotes& notes, const StopSignals& stop = {},
                                               int whole_layers = kWholeLayers);

}  // namespace moeplan::planner
