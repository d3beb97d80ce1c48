#include "agent/compare/validate.h"

#include <algorithm>

#include "agent/compare/contest.h"
#include "agent/compare/run_plan.h"
#include "agent/compare/settle.h"
#include "models/fit/statistics.h"
#include "models/plan/build_plan.h"
#include "models/routing/expert_load.h"
#include "models/schedule/schedules.h"
#include "models/text.h"

namespace moeplan::agent {
namespace {

StatusOr<std::vector<Contender>> ContendersOf(const PlanAnswer& answer, const Cluster& cluster, int top) {
  std::vector<Contender> contenders;
  const Workload workload = WithExpectedSlots(answer.workload);
  for (size_t i = 0; i < answer.candidates.size(); ++i) {
    const Plan& plan = answer.candidates[i];
    if (top > 0 && static_cast<int>(i) >= top && !IsBaseline(plan.knobs.family)) continue;
    ASSIGN_OR_RETURN(TaskGraph graph, BuildPlan(plan, workload, cluster));
    contenders.push_back({.plan = plan, .graph = std::move(graph)});
  }
  return contenders;
}

Status MakeReady(Bench& bench, std::vector<Contender>& contenders) {
  for (size_t i = 0; i < contenders.size(); ++i) {
    for (size_t j = 0; j < i && contenders[i].ready < 0; ++j) {
      if (SameTasks(contenders[i].graph, contenders[j].graph)) contenders[i].ready = contenders[j].ready;
    }
    if (contenders[i].ready >= 0) continue;
    ASSIGN_OR_RETURN(contenders[i].ready, bench.Add(contenders[i].plan));
  }
  return OkStatus();
}

// Appends the times of rounds in which all graphs take turns, so that drift of the machine hits all alike. A round
// takes each graph `runs` times and counts the median.
Status RunInTurn(Bench& bench, const std::vector<int>& graphs, int warm_ups, int rounds, int runs, Times& times_s) {
  times_s.resize(graphs.size());
  for (int round = -warm_ups; round < rounds; ++round) {
    Times round_s(graphs.size());
    for (int i = 0; i < runs * static_cast<int>(graphs.size()); ++i) {
      const size_t which = i % graphs.size();
      ASSIGN_OR_RETURN(const double time_s, bench.TimeOnceS(graphs[which]));
      round_s[which].push_back(time_s);
    }
    for (size_t i = 0; round >= 0 && i < graphs.size(); ++i) times_s[i].push_back(Median(round_s[i]));
  }
  return OkStatus();
}

StatusOr<Contest> RunAll(Fleet& fleet, const PlanAnswer& answer, int top) {
  Contest contest;
  Bench bench(fleet, answer.workload);
  ASSIGN_OR_RETURN(contest.contenders, ContendersOf(answer, fleet.cluster(), top));
  RETURN_IF_ERROR(MakeReady(bench, contest.contenders));
  contest.repeats_times = fleet.repeats_times();
  const std::vector<int> graphs = DistinctGraphs(contest.contenders);
  Times times_s;
  const int warm_ups = contest.repeats_times ? 0 : kWarmUpRuns, rounds = contest.repeats_times ? 1 : kMeasuredRuns;
  RETURN_IF_ERROR(RunInTurn(bench, graphs, warm_ups, rounds, /*runs=*/1, times_s));
  SetMeasured(contest.contenders, graphs, times_s);
  contest.finalists = FinalistsOf(contest.contenders);
  contest.near_tie = NearTieOf(contest.contenders);
  if (contest.repeats_times) {
    for (const size_t entrant : contest.Entrants()) {
      contest.final_times_s.push_back({contest.contenders[entrant].measured_s});
    }
  }
  RETURN_IF_ERROR(bench.Release());
  return contest;
}

// One of the last rounds of one workload.
Status RunEntrants(Fleet& fleet, const Workload& workload, Contest& contest) {
  Bench bench(fleet, workload);
  std::vector<int> graphs;
  for (const size_t entrant : contest.Entrants()) {
    ASSIGN_OR_RETURN(graphs.emplace_back(), bench.Add(contest.contenders[entrant].plan));
  }
  RETURN_IF_ERROR(RunInTurn(bench, graphs, /*warm_ups=*/1, /*rounds=*/1, kRunsOfFinalRound, contest.final_times_s));
  return bench.Release();
}

Status NothingToRun(size_t number, const PlanAnswer& answer) {
  const std::string why = answer.skipped_candidates.empty() ? ""
                                                            : StrCat(": ", answer.skipped_candidates.front().what, ": ",
                                                                     answer.skipped_candidates.front().reason);
  return Infeasible(
      StrCat("workloads[", number, "] (", answer.workload.name, "): no candidate can be priced and run", why));
}

}  // namespace

StatusOr<v1::ValidationReport> Validate(Fleet& fleet, const std::vector<Workload>& workloads, const PlanFunction& plan,
                                        const ValidationOptions& options) {
  if (workloads.empty()) return InvalidInput("workloads: found none, expected at least one");
  std::vector<PlanAnswer> answers;
  for (size_t i = 0; i < workloads.size(); ++i) {
    ASSIGN_OR_RETURN(answers.emplace_back(), plan(workloads[i]));
    if (!fleet.limits_ctas()) {
      std::erase_if(answers.back().candidates, [](const Plan& one) { return one.knobs.communication_ctas != 0; });
    }
    if (answers.back().candidates.empty()) return NothingToRun(i, answers.back());
  }
  std::vector<Contest> contests;
  const int final_rounds = fleet.repeats_times() ? 0 : kMeasuredRuns;
  const double steps = static_cast<double>(workloads.size()) * (1 + final_rounds);
  int step = 0;
  for (const PlanAnswer& answer : answers) {
    options.progress(step++ / steps, answer.workload.name);
    ASSIGN_OR_RETURN(contests.emplace_back(), RunAll(fleet, answer, options.top));
  }
  // The fastest of many is partly the luckiest, and a busy machine spoils seconds on end: only more looks, apart in
  // time, tell what choosing the fastest would have gained.
  for (int round = 0; round < final_rounds; ++round) {
    for (size_t i = 0; i < contests.size(); ++i) {
      options.progress(step++ / steps, answers[i].workload.name);
      RETURN_IF_ERROR(RunEntrants(fleet, answers[i].workload, contests[i]));
    }
  }
  v1::ValidationReport report;
  for (size_t i = 0; i < contests.size(); ++i) {
    *report.add_workloads() = Judge(answers[i].workload.name, std::move(contests[i]));
  }
  Summarise(report);
  return report;
}

}  // namespace moeplan::agent
