#include "models/timeline/critical_path.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace moeplan {

std::vector<TaskId> ReleasedBy(const TaskGraph& graph, const PlayedGraph& played) {
  std::vector<TaskId> released_by;
  std::array<TaskId, kStreamKinds> last_on;
  last_on.fill(kNoTask);
  for (TaskId task = 0; task < static_cast<TaskId>(graph.tasks.size()); ++task) {
    TaskId last = kNoTask;
    const auto consider = [&](TaskId before) {
      if (before == kNoTask) return;
      const bool later = last == kNoTask || played.end_s[before] > played.end_s[last] ||
                         (played.end_s[before] == played.end_s[last] && before > last);
      if (later) last = before;
    };
    TaskId& stream = last_on[static_cast<int>(graph.tasks[task].stream)];
    consider(stream);
    std::ranges::for_each(graph.tasks[task].dependencies, consider);
    released_by.push_back(last);
    stream = task;
  }
  return released_by;
}

std::vector<TaskId> CriticalPath(const std::vector<TaskId>& released_by, const PlayedGraph& played) {
  std::vector<TaskId> path;
  if (released_by.empty()) return path;
  const auto last = std::max_element(played.end_s.rbegin(), played.end_s.rend());
  for (auto task = static_cast<TaskId>(std::distance(last, played.end_s.rend()) - 1); task != kNoTask;
       task = released_by[task]) {
    path.push_back(task);
  }
  std::ranges::reverse(path);
  return path;
}

}  // namespace moeplan
