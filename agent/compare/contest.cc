#include "agent/compare/contest.h"

#include <algorithm>
#include <cmath>

#include "agent/compare/settle.h"
#include "models/fit/statistics.h"
#include "models/schedule/schedules.h"
#include "proto/convert/plan.h"

namespace moeplan::agent {
namespace {

std::vector<double> Medians(const Times& times_s) {
  std::vector<double> medians_s;
  for (const std::vector<double>& each : times_s) medians_s.push_back(Median(each));
  return medians_s;
}

v1::ValidatedWorkload Compare(const std::string& name, const std::vector<Contender>& contenders) {
  const Contender& chosen = contenders.front();
  v1::ValidatedWorkload result;
  result.set_name(name);
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

}  // namespace

v1::MeasuredCandidate ToMessage(const Contender& contender) {
  const v1::Plan plan = ToProto(contender.plan);
  v1::MeasuredCandidate message;
  message.set_schedule(plan.schedule());
  message.set_chunks(plan.chunks());
  message.set_partition_degree(plan.partition_degree());
  message.set_all_to_all(plan.all_to_all());
  message.set_dispatch_codec(plan.dispatch_codec());
  message.set_combine_codec(plan.combine_codec());
  message.set_overlapped_gather(plan.overlapped_gather());
  *message.mutable_chunk_shares() = plan.chunk_shares();
  if (plan.communication_ctas() != 0) message.set_communication_ctas(plan.communication_ctas());
  message.set_predicted_time_s(plan.predicted_time_s());
  message.set_low_s(plan.low_s());
  message.set_high_s(plan.high_s());
  message.set_measured_time_s(contender.measured_s);
  return message;
}

std::vector<size_t> Contest::Entrants() const {
  std::vector<size_t> entrants = finalists;
  const auto runs_already = [&](size_t finalist) { return contenders[finalist].ready == contenders[*near_tie].ready; };
  if (near_tie && std::ranges::none_of(finalists, runs_already)) entrants.push_back(*near_tie);
  return entrants;
}

std::vector<int> DistinctGraphs(const std::vector<Contender>& contenders) {
  std::vector<int> graphs;
  for (const Contender& contender : contenders) {
    if (std::ranges::find(graphs, contender.ready) == graphs.end()) graphs.push_back(contender.ready);
  }
  return graphs;
}

void SetMeasured(std::vector<Contender>& contenders, const std::vector<int>& graphs, const Times& times_s) {
  const std::vector<double> medians_s = Medians(times_s);
  for (Contender& contender : contenders) {
    const auto found = std::ranges::find(graphs, contender.ready);
    if (found != graphs.end()) contender.measured_s = medians_s[found - graphs.begin()];
  }
}

std::vector<size_t> FinalistsOf(const std::vector<Contender>& contenders) {
  const auto fastest = std::ranges::min_element(contenders, {}, &Contender::measured_s);
  if (fastest->ready == contenders.front().ready) return {0};
  return {0, static_cast<size_t>(fastest - contenders.begin())};
}

v1::ValidatedWorkload Judge(const std::string& name, Contest contest) {
  std::vector<int> graphs;
  for (const size_t entrant : contest.Entrants()) graphs.push_back(contest.contenders[entrant].ready);
  SetMeasured(contest.contenders, graphs, contest.final_times_s);
  v1::ValidatedWorkload result = Compare(name, contest.contenders);
  const double chosen_s = contest.contenders.front().measured_s;
  double fastest_s = chosen_s;
  for (const size_t entrant : contest.Entrants()) {
    fastest_s = std::min(fastest_s, contest.contenders[entrant].measured_s);
  }
  result.set_regret(std::max(0.0, chosen_s / fastest_s - 1));
  if (contest.near_tie) *result.mutable_settlement() = Settle(contest);
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

}  // namespace moeplan::agent
