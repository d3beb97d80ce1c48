// Where the data-parallel all-reduce of dense gradients runs beside a layer's backward pass: in slices, in the gaps
// that the layer's own communication leaves on the stream of its group, and never delaying it.
//
// The idea is that of FSMoE (arXiv 2501.10714), which partitions gradients over the layers, and FlowMoE (2510.00207),
// which cuts them into chunks of one tuned size and gives these the lowest priority; here each gap gets the slice that
// fits it.
//
// A gap is a stretch of the played timeline in which the stream is idle (in TRAINING, after the forward pass) and no
// running task would be slowed by an all-reduce beside it: either the profile knows no slowdown, or it is slowed as
// much already. A gap begins with the end of a task, which starts its slice, and a slice ends by the end of its gap, at
// the speed that contention with what runs beside it leaves it. So every task of the layer keeps its start and its end
// to the bit; a replay checks that. What fits nowhere is one slice more, which starts as soon after the stream's last
// task as it delays nothing, and may outlast the layer. Slices, that one too, have at least min_chunk_bytes, unless all
// gradients go in one.
//
// Of all choices with at most one slice a gap, this leaves the least time exposed, in the fewest slices, provided that
// an all-reduce of more bytes takes no less time. Two slices in one gap would pay the start-up twice; where a measured
// curve makes two smaller ones faster than one, they are missed. So are slices that put a task off which then, spared
// the contention that it met before, ends as early: rare (tests/planner/gradients_test.cc counts them).
// Gaps are those of the expected times: where tasks take longer or shorter than predicted, slices delay or wait.
#pragma once

#include "models/cost/profile.h"
#include "models/schedule/gradient_slices.h"
#include "models/schedule/task_graph.h"
#include "models/status.h"
#include "models/timeline/price.h"
#include "models/workload/workload.h"
#include "planner/stop_signals.h"

namespace moeplan::planner {

struct PlacedGradients {
  TaskGraph graph;     // With the slices (models/schedule/gradient_slices.h).
  GraphPrices prices;  // Of its tasks.
  GradientExchange exchange;
};

// Places workload.gradient_bytes beside `graph`, which is the part of a schedule that the workload's phase is about,
// and whose prices under `profile` miss nothing. Without gradients, or replicas to exchange them with, the graph stays
// as it is. kNotFound when the profile lacks the all-reduce: the key and the command that would measure it.
// kCancelled: stopped before it had placed them.
// Pure: the same arguments give the same slices. Requires a resolved workload.
StatusOr<PlacedGradients> PlaceGradients(TaskGraph graph, GraphPrices prices, const Workload& workload,
                                         const Profile& profile, const StopSignals& stop = {});

}  // namespace moeplan::planner
