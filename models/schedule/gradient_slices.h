// The all-reduce of dense gradients, cut into slices, as tasks of a layer's graph: what FSMoE and FlowMoE run in the
// gaps that a layer's own communication leaves on its stream.
//
// Where the slices go, and how large they are, is decided elsewhere (planner/gradients); here they become tasks
// "dense_gradients.1", "dense_gradients.2" ..., each summing in place a buffer of that name and of as many bytes. They
// read nothing that the layer writes, and nothing of it waits for them but for its place on their stream. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/schedule/task_graph.h"
#include "models/status.h"

namespace moeplan {

// A piece of the all-reduce of dense gradients, on the stream of its group.
struct GradientSlice {
  std::string after_task;   // Whose end starts it; empty: it waits for nothing but its stream.
  std::string before_task;  // What its stream runs next; empty: nothing but later slices.
  double start_s = 0;
  double end_s = 0;
  double bytes = 0;

  friend bool operator==(const GradientSlice&, const GradientSlice&) = default;
};

// How gradient_bytes are exchanged beside a layer. Empty and 0 where there are none, or nobody to exchange them with.
struct GradientExchange {
  std::vector<GradientSlice> slices;  // In launch order, whole elements each, gradient_bytes in all.
  double hidden_s = 0;                // Of the time that slices run, what passes before the layer ends,
  double exposed_s = 0;               // and what passes after.

  friend bool operator==(const GradientExchange&, const GradientExchange&) = default;
};

// The name of the task of slice `slice`, counted from 0: "dense_gradients.1" for the first.
std::string SliceName(size_t slice);

// `graph` with a task for each slice, among its backward tasks. A slice is launched just before its before_task, or
// after everything else, and depends on its after_task; start_s and end_s are not read. Without slices, `graph` as it
// is. kInvalidInput for bytes that are not whole elements, a task that the graph lacks or that is not one of its
// backward tasks on the slice's stream, an after_task launched later, a graph without backward tasks, and slices out of
// launch order.
StatusOr<TaskGraph> WithGradientSlices(TaskGraph graph, std::span<const GradientSlice> slices);

}  // namespace moeplan
