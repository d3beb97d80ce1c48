// The gaps of a played timeline in which a collective may run on a stream without delaying anything; what that means is
// said in planner/gradients/place_gradients.h.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "models/schedule/task_graph.h"
#include "models/timeline/price.h"
#include "models/timeline/task_cost.h"
#include "models/timeline/timeline.h"

namespace moeplan::planner {

struct Gap {
  // In which what runs beside stays the same; each begins where the one before ends.
  struct Part {
    double end_s = 0;
    ContentionSet beside;  // What the tasks that run impose.
  };

  double start_s = 0;
  TaskId after = kNoTask;   // A task that ends at start_s; kNoTask: the gap begins with the graph.
  TaskId before = kNoTask;  // The next task of the stream, launched later than `after`. kNoTask: there is none.
  std::vector<Part> parts;  // At least one.

  double end_s() const { return parts.back().end_s; }  // Infinity in the last gap of the stream.
};

// By start. `slowed_by(task)` says how many times longer a task takes beside the collective, at least 1. The last gap
// is the one without end.
std::vector<Gap> GapsOf(const TaskGraph& graph, std::span<const TaskPrice> prices, const PlayedGraph& played,
                        StreamKind stream, const std::function<double(TaskId)>& slowed_by);

// When something that takes time_s alone ends if it starts with the gap, where `slowdown(beside)` is how many times
// longer it takes: the arithmetic of Play. Infinity when that is after the gap.
double EndIn(const Gap& gap, double time_s, const std::function<double(const ContentionSet&)>& slowdown);

}  // namespace moeplan::planner
