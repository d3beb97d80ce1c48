#include "planner/search/explain_plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "models/check.h"
#include "models/plan/build_plan.h"
#include "models/timeline/cost_index.h"
#include "models/timeline/task_cost.h"
#include "planner/search/candidate.h"
#include "planner/search/price_plan.h"

namespace moeplan::planner {
namespace {

ExplainedTask Explained(const Task& task, const TaskGraph& graph, double alone_s, CostIndex& index) {
  ExplainedTask explained = {.alone_s = alone_s};
  const std::optional<TaskCost> cost = CostOf(task, graph);
  if (!cost) return explained;
  explained.size = cost->size;
  explained.cost = index.EntryOf(cost->key);
  if (explained.cost || alone_s == 0) return explained;
  explained.foretold = true;
  explained.cost = StandInOf(cost->key, index);
  return explained;
}

}  // namespace

StatusOr<ExplainedPlan> ExplainPlan(const Plan& plan, const Workload& resolved, const Profile& profile,
                                    const StopSignals& stop) {
  ASSIGN_OR_RETURN(Candidate candidate, PriceFilledIn(plan, resolved, profile));
  candidate.memory_bytes = plan.memory_bytes;
  candidate.gradients = plan.gradients;
  AddInterval(candidate, stop);
  ExplainedPlan explained = {.warnings = candidate.prices.notes.Warnings()};
  const std::vector<TaskId> released_by = ReleasedBy(candidate.graph, candidate.played);
  CostIndex index(profile);
  for (size_t task = 0; task < candidate.graph.tasks.size(); ++task) {
    explained.tasks.push_back(
        Explained(candidate.graph.tasks[task], candidate.graph, candidate.prices.tasks[task].time_s, index));
    explained.tasks.back().released_by = released_by[task];
  }
  for (const TaskId task : CriticalPath(released_by, candidate.played)) explained.tasks[task].critical = true;
  explained.plan = PlanOf(candidate);
  return explained;
}

StatusOr<std::vector<KeyTime>> TimesByKey(const Plan& plan, const Workload& resolved, const Cluster& cluster) {
  ASSIGN_OR_RETURN(TaskGraph whole, BuildPlan(plan, resolved, cluster));
  const TaskGraph graph = PartOf(std::move(whole), resolved.phase);
  MOEPLAN_CHECK(graph.tasks.size() == plan.timeline.size());
  std::map<std::string_view, double> length_s;
  for (const TaskTiming& timing : plan.timeline) length_s[timing.task] = timing.end_s - timing.start_s;
  std::map<CostKey, double> time_s;
  for (const Task& task : graph.tasks) {
    if (const std::optional<TaskCost> cost = CostOf(task, graph)) time_s[cost->key] += length_s.at(task.name);
  }
  std::vector<KeyTime> times;
  for (const auto& [key, of_key_s] : time_s) times.push_back({key, of_key_s});
  return times;
}

std::vector<CostKey> DearestEntries(const std::vector<KeyTime>& times, const Profile& profile) {
  CostIndex index(profile);
  std::vector<KeyTime> entries;
  for (const auto& [key, time_s] : times) {
    std::optional<CostKey> entry = index.EntryOf(key);
    if (!entry) entry = StandInOf(key, index);
    if (!entry) continue;
    const auto known = std::ranges::find(entries, *entry, &KeyTime::key);
    if (known != entries.end()) {
      known->time_s += time_s;
    } else {
      entries.push_back({*entry, time_s});
    }
  }
  std::ranges::stable_sort(entries, std::greater(), &KeyTime::time_s);
  std::vector<CostKey> keys;
  for (KeyTime& entry : entries) keys.push_back(std::move(entry.key));
  return keys;
}

}  // namespace moeplan::planner
