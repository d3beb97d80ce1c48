#include "models/schedule/launch_order.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include "models/check.h"
#include "models/schedule/schedules.h"
#include "models/text.h"

namespace moeplan {
namespace {

constexpr int kNowhere = -1;

Status WrongOrder(const std::string& found, const std::string& expected) {
  return InvalidInput(StrCat("order: found ", found, ", expected ", expected));
}

}  // namespace

TaskGraph Relaunched(TaskGraph graph, std::span<const TaskId> order) {
  MOEPLAN_CHECK(order.size() == graph.tasks.size());
  std::vector<TaskId> now_at(order.size(), kNowhere);
  std::vector<Task> tasks;
  tasks.reserve(order.size());
  for (const TaskId task : order) {
    MOEPLAN_CHECK(now_at[task] == kNowhere);
    now_at[task] = static_cast<TaskId>(tasks.size());
    MOEPLAN_CHECK((task < graph.first_backward) == (now_at[task] < graph.first_backward));
    Task moved = std::move(graph.tasks[task]);
    for (TaskId& before : moved.dependencies) {
      MOEPLAN_CHECK(now_at[before] != kNowhere);
      before = now_at[before];
    }
    std::ranges::sort(moved.dependencies);
    tasks.push_back(std::move(moved));
  }
  graph.tasks = std::move(tasks);
  return graph;
}

StatusOr<TaskGraph> LaunchedBy(TaskGraph graph, Phase phase, std::span<const std::string> names) {
  const TaskRange range = TasksOf(graph, phase);
  std::map<std::string_view, int> place;
  for (const std::string& name : names) {
    if (!place.emplace(name, static_cast<int>(place.size())).second) {
      return WrongOrder(StrCat("task ", name, " twice"), "each task once");
    }
  }
  const auto place_of = [&](TaskId task) {
    const auto found = place.find(graph.tasks[task].name);
    return found == place.end() ? kNowhere : found->second;
  };
  for (TaskId task = range.first; task < range.end; ++task) {
    const std::string& name = graph.tasks[task].name;
    if (place_of(task) == kNowhere) return WrongOrder(StrCat("no task ", name), "every task of the schedule");
    for (const TaskId before : graph.tasks[task].dependencies) {
      if (before >= range.first && place_of(before) > place_of(task)) {
        return WrongOrder(StrCat("task ", name, " before ", graph.tasks[before].name),
                          "tasks after those they depend on");
      }
    }
  }
  if (static_cast<TaskId>(names.size()) != range.end - range.first) {
    const auto known = [&](const std::string& name) {
      return std::any_of(graph.tasks.begin() + range.first, graph.tasks.begin() + range.end,
                         [&](const Task& task) { return task.name == name; });
    };
    return WrongOrder(StrCat("task ", *std::ranges::find_if_not(names, known)),
                      "the tasks of the schedule, its chunks and the phase alone");
  }
  std::vector<TaskId> order(graph.tasks.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin() + range.first, order.begin() + range.end, [&](TaskId a, TaskId b) {
    return std::pair(a >= graph.first_backward, place_of(a)) < std::pair(b >= graph.first_backward, place_of(b));
  });
  return Relaunched(std::move(graph), order);
}

StatusOr<TaskGraph> BuildPlanned(const Knobs& knobs, std::span<const std::string> order, const Workload& workload,
                                 const Cluster& cluster) {
  ASSIGN_OR_RETURN(TaskGraph graph, BuildSchedule(knobs, workload, cluster));
  if (order.empty()) return graph;
  return LaunchedBy(std::move(graph), workload.phase, order);
}

}  // namespace moeplan
