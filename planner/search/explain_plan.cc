#include "planner/search/explain_plan.h"

#include <utility>

#include "models/timeline/cost_index.h"
#include "models/timeline/task_cost.h"
#include "planner/search/candidate.h"
#include "planner/search/price_plan.h"

namespace moeplan {
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

StatusOr<ExplainedPlan> ExplainPlan(const Plan& plan, const Workload& resolved, const Profile& profile) {
  ASSIGN_OR_RETURN(Candidate candidate, PriceFilledIn(plan, resolved, profile));
  candidate.memory_bytes = plan.memory_bytes;
  candidate.gradients = plan.gradients;
  AddInterval(candidate);
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

}  // namespace moeplan
