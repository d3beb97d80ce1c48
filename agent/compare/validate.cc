#include "agent/compare/validate.h"

#include <algorithm>
#include <cmath>

#include "agent/compare/run_plan.h"
#include "models/fit/statistics.h"
#include "models/schedule/schedules.h"
#include "models/text.h"
#include "proto/convert/plan.h"

namespace moeplan {
namespace {

// Candidates whose task graphs are the same run as one.
struct Contender {
  Plan plan;
  TaskGraph graph;
  int ready = -1;  // The graph's number on the bench, shared by equals.
  double measured_s = 0;
};

StatusOr<std::vector<Contender>> ContendersOf(const PlanAnswer& answer, const Cluster& cluster, int top) {
  std::vector<Contender> contenders;
  for (size_t i = 0; i < answer.candidates.size(); ++i) {
    const Plan& plan = answer.candidates[i];
    if (top > 0 && static_cast<int>(i) >= top && !IsBaseline(plan.knobs.family)) continue;
    ASSIGN_OR_RETURN(TaskGraph graph, BuildSchedule(plan.knobs, answer.workload, cluster));
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

using Times = std::vector<std::vector<double>>;  // By graph, one a round.

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

std::vector<double> Medians(const Times& times_s) {
  std::vector<double> medians_s;
  for (const std::vector<double>& each : times_s) medians_s.push_back(Median(each));
  return medians_s;
}

std::vector<int> DistinctGraphs(const std::vector<Contender>& contenders) {
  std::vector<int> graphs;
  for (const Contender& contender : contenders) {
    if (std::ranges::find(graphs, contender.ready) == graphs.end()) graphs.push_back(contender.ready);
  }
  return graphs;
}

void SetMeasured(std::vector<Contender>& contenders, const std::vector<int>& graphs,
                 const std::vector<double>& times_s) {
  for (Contender& contender : contenders) {
    const auto found = std::ranges::find(graphs, contender.ready);
    if (found != graphs.end()) contender.measured_s = times_s[found - graphs.begin()];
  }
}

v1::MeasuredCandidate ToMessage(const Contender& contender) {
  const v1::Plan plan = ToProto(contender.plan);
  v1::MeasuredCandidate message;
  message.set_schedule(plan.schedule());
  message.set_chunks(plan.chunks());
  message.set_partition_degree(plan.partition_degree());
  message.set_all_to_all(plan.all_to_all());
  message.set_predicted_time_s(plan.predicted_time_s());
  message.set_low_s(plan.low_s());
  message.set_high_s(plan.high_s());
  message.set_measured_time_s(contender.measured_s);
  return message;
}

const Contender& Fastest(const std::vector<Contender>& contenders) {
  return *std::ranges::min_element(contenders, {}, &Contender::measured_s);
}

v1::ValidatedWorkload Compare(const PlanAnswer& answer, const std::vector<Contender>& contenders) {
  const Contender& chosen = contenders.front();
  v1::ValidatedWorkload result;
  result.set_name(answer.workload.name);
  *result.mutable_chosen() = ToMessage(chosen);
  double baseline_s = 0;
  for (const Contender& contender : contenders) {
    *result.add_candidates() = ToMessage(contender);
    if (IsBaseline(contender.plan.knobs.family) && (baseline_s == 0 || contender.measured_s < baseline_s))
      baseline_s = contender.measured_s;
  }
  result.set_prediction_error(std::abs(chosen.plan.predicted_time_s - chosen.measured_s) / chosen.measured_s);
  result.set_speedup_over_baseline(baseline_s / chosen.measured_s);
  return result;
}

void Summarise(v1::ValidationReport& report) {
  std::vector<double> errors, regrets;
  double log_speedups = 0;
  int inside = 0, candidates = 0, with_baseline = 0;
  for (const v1::ValidatedWorkload& workload : report.workloads()) {
    errors.push_back(workload.prediction_error());
    regrets.push_back(workload.regret());
    if (workload.speedup_over_baseline() > 0) {
      log_speedups += std::log(workload.speedup_over_baseline());
      ++with_baseline;
    }
    for (const v1::MeasuredCandidate& candidate : workload.candidates()) {
      ++candidates;
      inside += candidate.low_s() <= candidate.measured_time_s() && candidate.measured_time_s() <= candidate.high_s();
    }
  }
  double regret_sum = 0;
  for (const double regret : regrets) regret_sum += regret;
  report.set_prediction_error_p50(Median(errors));
  report.set_prediction_error_p95(Quantile(errors, 0.95));
  report.set_regret_mean(regret_sum / regrets.size());
  report.set_regret_max(*std::ranges::max_element(regrets));
  report.set_coverage(static_cast<double>(inside) / candidates);
  report.set_speedup_over_baseline_mean(with_baseline > 0 ? std::exp(log_speedups / with_baseline) : 0);
}

// One workload under comparison.
struct Contest {
  PlanAnswer answer;
  std::vector<Contender> contenders;  // The chosen plan first.
  std::vector<size_t> finalists;      // The chosen and, where it is another graph, the fastest.
  Times final_times_s;                // By finalist.
};

StatusOr<Contest> RunAll(Fleet& fleet, PlanAnswer answer, int top) {
  Contest contest{.answer = std::move(answer)};
  Bench bench(fleet, contest.answer.workload);
  ASSIGN_OR_RETURN(contest.contenders, ContendersOf(contest.answer, fleet.cluster(), top));
  RETURN_IF_ERROR(MakeReady(bench, contest.contenders));
  const std::vector<int> graphs = DistinctGraphs(contest.contenders);
  Times times_s;
  RETURN_IF_ERROR(RunInTurn(bench, graphs, kWarmUpRuns, kMeasuredRuns, /*runs=*/1, times_s));
  SetMeasured(contest.contenders, graphs, Medians(times_s));
  contest.finalists = {0};
  const size_t fastest = &Fastest(contest.contenders) - contest.contenders.data();
  if (contest.contenders[fastest].ready != contest.contenders.front().ready) contest.finalists.push_back(fastest);
  RETURN_IF_ERROR(bench.Release());
  return contest;
}

constexpr int kRunsOfFinalRound = 3;

// One of the last rounds of one workload.
Status RunFinalists(Fleet& fleet, Contest& contest) {
  Bench bench(fleet, contest.answer.workload);
  std::vector<int> graphs;
  for (const size_t finalist : contest.finalists) {
    ASSIGN_OR_RETURN(graphs.emplace_back(), bench.Add(contest.contenders[finalist].plan));
  }
  RETURN_IF_ERROR(RunInTurn(bench, graphs, /*warm_ups=*/1, /*rounds=*/1, kRunsOfFinalRound, contest.final_times_s));
  return bench.Release();
}

v1::ValidatedWorkload Judge(Contest& contest) {
  std::vector<int> graphs;
  for (const size_t finalist : contest.finalists) graphs.push_back(contest.contenders[finalist].ready);
  const std::vector<double> times_s = Medians(contest.final_times_s);
  SetMeasured(contest.contenders, graphs, times_s);
  v1::ValidatedWorkload result = Compare(contest.answer, contest.contenders);
  result.set_regret(std::max(0.0, times_s.front() / times_s.back() - 1));
  return result;
}

}  // namespace

StatusOr<v1::ValidationReport> Validate(Fleet& fleet, const std::vector<Workload>& workloads, const PlanFunction& plan,
                                        const ValidationOptions& options) {
  if (workloads.empty()) return InvalidInput("workloads: found none, expected at least one");
  std::vector<PlanAnswer> answers;
  for (size_t i = 0; i < workloads.size(); ++i) {
    ASSIGN_OR_RETURN(answers.emplace_back(), plan(workloads[i]));
    if (answers.back().candidates.empty())
      return Infeasible(StrCat("workloads[", i, "]: no candidate can be priced and run"));
  }
  std::vector<Contest> contests;
  const double steps = static_cast<double>(workloads.size()) * (1 + kMeasuredRuns);
  int step = 0;
  for (PlanAnswer& answer : answers) {
    options.progress(step++ / steps, answer.workload.name);
    ASSIGN_OR_RETURN(contests.emplace_back(), RunAll(fleet, std::move(answer), options.top));
  }
  // The fastest of many is partly the luckiest, and a busy machine spoils seconds on end: only more looks, apart in
  // time, tell what choosing the fastest would have gained.
  for (int round = 0; round < kMeasuredRuns; ++round) {
    for (Contest& contest : contests) {
      options.progress(step++ / steps, contest.answer.workload.name);
      RETURN_IF_ERROR(RunFinalists(fleet, contest));
    }
  }
  v1::ValidationReport report;
  for (Contest& contest : contests) *report.add_workloads() = Judge(contest);
  Summarise(report);
  return report;
}

}  // namespace moeplan
