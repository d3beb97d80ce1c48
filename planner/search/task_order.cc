#include "planner/search/task_order.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "models/schedule/launch_order.h"
#include "models/text.h"
#include "planner/search/overlap_floor.h"
#include "planner/search/stage_order.h"
#include "planner/ties.h"

namespace moeplan::planner {
namespace {

// The tasks of a graph as stages of tasks alike.
struct StagedGraph {
  std::vector<OrderedStage> stages;
  std::vector<std::vector<TaskId>> tasks;  // By stage and index.
};

class Staging {
 public:
  Staging(const TaskGraph& graph, std::span<const double> times_s)
      : graph_(graph), times_s_(times_s), group_(graph.tasks.size()), alone_(graph.tasks.size(), false) {}

  // Absent: more stages than a search takes.
  std::optional<StagedGraph> Run() {
    do {
      Group();
      if (staged_.tasks.size() > kMostOrderedStages) return std::nullopt;
    } while (!Connect());
    return std::move(staged_);
  }

 private:
  bool Backward(TaskId task) const { return task >= graph_.first_backward; }

  // "dispatch_a2a" of "dispatch_a2a.2".
  std::string_view NameWithoutChunk(const Task& task) const {
    std::string_view name = task.name;
    const std::string suffix = StrCat(".", task.chunk + 1);
    if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
    return name;
  }

  void Group() {
    staged_ = {};
    std::map<std::tuple<std::string_view, StreamKind, double, TaskId>, int> known;
    for (TaskId id = 0; id < static_cast<TaskId>(graph_.tasks.size()); ++id) {
      const Task& task = graph_.tasks[id];
      const std::tuple kind(NameWithoutChunk(task), task.stream, times_s_[id], alone_[id] ? id : -1);
      const auto [found, fresh] = known.try_emplace(kind, static_cast<int>(staged_.stages.size()));
      if (fresh) {
        staged_.stages.push_back({.lane = static_cast<int>(task.stream), .time_s = times_s_[id], .tasks = 0});
        staged_.tasks.emplace_back();
      }
      group_[id] = {found->second, staged_.stages[found->second].tasks++};
      staged_.tasks[found->second].push_back(id);
    }
  }

  // Says what each stage needs. False when tasks of a stage turned out not to be alike and were told apart.
  bool Connect() {
    bool alike = true;
    for (size_t stage = 0; stage < staged_.stages.size(); ++stage) {
      std::vector<StageNeed>& needs = staged_.stages[stage].needs;
      for (size_t index = 0; index < staged_.tasks[stage].size(); ++index) {
        const std::optional<std::vector<StageNeed>> own = NeedsOf(static_cast<int>(stage), static_cast<int>(index));
        if (index == 0 && own) needs = *own;
        if (own && *own == needs) continue;
        TellApart(static_cast<int>(stage));
        alike = false;
        break;
      }
    }
    if (alike) KeepBackwardBehind();
    return alike;
  }

  // Absent: it needs some tasks of a stage, neither all nor the one of the same index.
  std::optional<std::vector<StageNeed>> NeedsOf(int stage, int index) {
    std::map<int, std::vector<int>> needed;
    for (const TaskId before : graph_.tasks[staged_.tasks[stage][index]].dependencies) {
      needed[group_[before].first].push_back(group_[before].second);
    }
    std::vector<StageNeed> needs;
    for (const auto& [other, indices] : needed) {
      const int tasks = staged_.stages[other].tasks;
      const bool all = static_cast<int>(indices.size()) == tasks;
      const bool same = indices.size() == 1 && indices[0] == index && tasks == staged_.stages[stage].tasks;
      if (other >= stage || (!all && !same)) {
        TellApart(other);
        return std::nullopt;
      }
      needs.push_back({.stage = other, .all = !same});
    }
    return needs;
  }

  void TellApart(int stage) {
    for (const TaskId task : staged_.tasks[stage]) alone_[task] = true;
  }

  // A stream's backward tasks are launched after its forward ones.
  void KeepBackwardBehind() {
    for (size_t stage = 0; stage < staged_.stages.size(); ++stage) {
      if (!Backward(staged_.tasks[stage][0])) continue;
      OrderedStage& behind = staged_.stages[stage];
      for (int other = 0; other < static_cast<int>(stage); ++other) {
        if (Backward(staged_.tasks[other][0]) || staged_.stages[other].lane != behind.lane) continue;
        const auto needed = std::ranges::find(behind.needs, other, &StageNeed::stage);
        if (needed == behind.needs.end()) {
          behind.needs.push_back({.stage = other, .all = true});
        } else {
          needed->all = true;
        }
      }
    }
  }

  const TaskGraph& graph_;
  const std::span<const double> times_s_;
  std::vector<std::pair<int, int>> group_;  // By task: its stage, and its index there.
  std::vector<bool> alone_;
  StagedGraph staged_;
};

std::vector<double> TimesAlone(std::span<const TaskPrice> prices) {
  std::vector<double> times_s;
  for (const TaskPrice& price : prices) times_s.push_back(price.time_s);
  return times_s;
}

// Of each kind of task the mean of what it took, so that chunks stay alike.
std::vector<double> TimesPlayed(const StagedGraph& staged, const PlayedGraph& played) {
  std::vector<double> times_s(played.start_s.size());
  for (const std::vector<TaskId>& tasks : staged.tasks) {
    double sum_s = 0;
    for (const TaskId task : tasks) sum_s += played.end_s[task] - played.start_s[task];
    for (const TaskId task : tasks) times_s[task] = sum_s / static_cast<double>(tasks.size());
  }
  return times_s;
}

StageOrder OwnOrder(const StagedGraph& staged) {
  std::vector<std::pair<TaskId, StageTask>> by_launch;
  for (size_t stage = 0; stage < staged.tasks.size(); ++stage) {
    for (size_t index = 0; index < staged.tasks[stage].size(); ++index) {
      by_launch.push_back({staged.tasks[stage][index], {static_cast<int>(stage), static_cast<int>(index)}});
    }
  }
  std::ranges::sort(by_launch, {}, [](const auto& launch) { return launch.first; });
  StageOrder order;
  for (const auto& [task, place] : by_launch) order.push_back(place);
  return order;
}

std::vector<TaskId> TasksIn(const StageOrder& order, const StagedGraph& staged, TaskId first_backward) {
  std::vector<TaskId> tasks;
  for (const auto& [stage, index] : order) tasks.push_back(staged.tasks[stage][index]);
  std::ranges::stable_partition(tasks, [&](TaskId task) { return task < first_backward; });
  return tasks;
}

}  // namespace

double TaskOrderFloorS(const TaskGraph& graph, std::span<const TaskPrice> prices) {
  std::vector<double> ends_s(graph.tasks.size());
  double floor_s = 0;
  for (size_t task = 0; task < graph.tasks.size(); ++task) {
    for (const TaskId before : graph.tasks[task].dependencies) ends_s[task] = std::max(ends_s[task], ends_s[before]);
    ends_s[task] += prices[task].time_s;
    floor_s = std::max(floor_s, ends_s[task]);
  }
  return std::max(floor_s, OverlapFloorS(graph, prices));
}

TaskOrderOutcome SearchTaskOrder(const TaskGraph& graph, std::span<const TaskPrice> prices, const PlayedGraph& played,
                                 CostIndex& index, int budget_nodes, const StopSignals& stop) {
  const std::vector<double> times_s = TimesAlone(prices);
  TaskOrderOutcome outcome = {.time_s = played.total_s, .time_floor_s = TaskOrderFloorS(graph, prices)};
  const auto improves = [&](double time_s) { return time_s < outcome.time_s * (1 - kTie); };
  std::optional<StagedGraph> staged = Staging(graph, times_s).Run();
  if (!staged || !improves(outcome.time_floor_s)) return outcome;

  const auto try_order = [&](const StageOrder& order) {
    std::vector<TaskId> tasks = TasksIn(order, *staged, graph.first_backward);
    const TaskGraph relaunched = Relaunched(graph, tasks);
    const double time_s = Play(relaunched, PriceGraph(relaunched, index).tasks).total_s;
    if (!improves(time_s)) return;
    outcome.time_s = time_s;
    outcome.order = std::move(tasks);
  };
  const StageOrder own = OwnOrder(*staged);
  const StageOrderOutcome alone = SearchStageOrder(staged->stages, own, budget_nodes, stop);
  outcome.time_floor_s = std::max(outcome.time_floor_s, alone.time_floor_s);
  outcome.nodes = alone.nodes;
  if (alone.order != own) try_order(alone.order);
  if (!improves(outcome.time_floor_s) || outcome.nodes >= budget_nodes || stop.Requested()) return outcome;

  const std::vector<double> contended_s = TimesPlayed(*staged, played);
  for (size_t stage = 0; stage < staged->stages.size(); ++stage) {
    staged->stages[stage].time_s = contended_s[staged->tasks[stage][0]];
  }
  const StageOrderOutcome contended = SearchStageOrder(staged->stages, own, budget_nodes - outcome.nodes, stop);
  outcome.nodes += contended.nodes;
  if (contended.order != own && contended.order != alone.order) try_order(contended.order);
  return outcome;
}

}  // namespace moeplan::planner
