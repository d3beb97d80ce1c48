// When each task of a rank ran, or is predicted to run: what plans, measured runs and traces share.
//
// Seconds since the layer began, on the rank's own clock. Values only.
#pragma once

#include <string>
#include <vector>

#include "models/schedule/task_graph.h"

namespace moeplan {

struct TaskTiming {
  std::string task;
  TaskKind kind = TaskKind::kOther;
  StreamKind stream = StreamKind::kCompute;
  int chunk = 0;
  double start_s = 0;
  double end_s = 0;

  friend bool operator==(const TaskTiming&, const TaskTiming&) = default;
};
using Timeline = std::vector<TaskTiming>;

}  // namespace moeplan
