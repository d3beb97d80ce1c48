// When each task of a priced graph starts and ends.
//
// Streams are FIFO: a stream runs its tasks in launch order, and a task starts once its stream is free and everything
// it depends on is done. Contention is fluid: while others run, a task progresses at the rate 1/slowdown, where
// slowdown is the largest that any of them imposes on it. Collectives that want more of a rank's links between nodes
// than there is (TaskPrice::network_share) divide these max-min fairly: each gets what it wants or an equal part, and
// is as much slower as it gets less. Without contention an end is exactly the longest path over dependencies and stream
// order; with it, shorter tasks can end later, because they meet others they would have missed.
#pragma once

#include <span>
#include <vector>

#include "models/schedule/task_graph.h"
#include "models/timeline/price.h"
#include "models/timeline/task_timing.h"

namespace moeplan {

inline constexpr TaskId kNoTask = -1;

struct PlayedGraph {
  std::vector<double> start_s;  // Of each task, in graph order, since the graph began.
  std::vector<double> end_s;
  double total_s = 0;                  // The last end.
  double communication_time_s = 0;     // Sum over collectives, each from start to end.
  double exposed_communication_s = 0;  // While a collective runs and no compute-stream task does.
  double compute_time_s = 0;           // Sum over compute-stream tasks.
};

// Plays the graph. Requires one price for each task, and tasks in launch order.
PlayedGraph Play(const TaskGraph& graph, std::span<const TaskPrice> prices);

// The played times under the graph's names, in graph order.
Timeline TimelineOf(const TaskGraph& graph, const PlayedGraph& played);

// Whether the kind is a collective.
bool Communicates(TaskKind kind);

}  // namespace moeplan
