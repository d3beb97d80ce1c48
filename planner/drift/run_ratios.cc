#include "planner/drift/run_ratios.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "models/fit/statistics.h"
#include "models/text.h"
#include "models/timeline/cost_index.h"
#include "models/timeline/timeline.h"
#include "planner/search/price_plan.h"

namespace moeplan::planner {
namespace {

// Of each task, what every rank took that reports it.
StatusOr<std::vector<std::vector<double>>> MeasuredS(const TaskGraph& graph, std::span<const Timeline> ranks) {
  std::map<std::string_view, size_t> by_name;
  for (size_t task = 0; task < graph.tasks.size(); ++task) by_name.emplace(graph.tasks[task].name, task);
  std::vector<std::vector<double>> measured(graph.tasks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (size_t i = 0; i < ranks[rank].size(); ++i) {
      const TaskTiming& timing = ranks[rank][i];
      const auto found = by_name.find(timing.task);
      if (found == by_name.end()) {
        return InvalidInput(StrCat("ranks[", rank, "].timeline[", i, "].task: found ", timing.task,
                                   ", expected a task of the plan, such as ", graph.tasks.front().name));
      }
      measured[found->second].push_back(timing.end_s - timing.start_s);
    }
  }
  return measured;
}

double SpanS(const Timeline& timeline) {
  double first = timeline.front().start_s, last = timeline.front().end_s;
  for (const TaskTiming& timing : timeline) {
    first = std::min(first, timing.start_s);
    last = std::max(last, timing.end_s);
  }
  return last - first;
}

}  // namespace

StatusOr<RunRatios> CompareRun(const Plan& plan, const Workload& resolved, const Profile& profile,
                               std::span<const Timeline> ranks) {
  ASSIGN_OR_RETURN(const Candidate candidate, PriceFilledIn(plan, resolved, profile));
  ASSIGN_OR_RETURN(const auto measured, MeasuredS(candidate.graph, ranks));
  RunRatios run = {.predicted_s = candidate.time_s()};
  for (const Timeline& timeline : ranks) {
    if (!timeline.empty()) run.measured_s = std::max(run.measured_s, SpanS(timeline));
  }
  if (!(run.measured_s > 0))
    return InvalidInput("ranks: found no measured task, expected at least one rank's timeline");

  CostIndex index(profile);
  struct Sums {
    CostKey key;
    double measured_s = 0, predicted_s = 0;
  };
  std::vector<Sums> sums;
  sums.reserve(candidate.prices.keys.size());  // Pointed to.
  std::vector<Sums*> sums_of_key(candidate.prices.keys.size());
  for (size_t key = 0; key < sums_of_key.size(); ++key) {
    const CostIndex::Source& source = index.SourceOf(candidate.prices.keys[key]);
    if (source.model == nullptr) continue;
    const auto known = std::ranges::find(sums, source.key, &Sums::key);
    sums_of_key[key] = known != sums.end() ? &*known : &sums.emplace_back(Sums{.key = source.key});
  }
  for (size_t task = 0; task < measured.size(); ++task) {
    const int key = candidate.prices.tasks[task].key;
    if (key < 0 || sums_of_key[key] == nullptr || measured[task].empty()) continue;
    const bool shared = Communicates(candidate.graph.tasks[task].kind);
    sums_of_key[key]->measured_s += shared ? *std::ranges::min_element(measured[task]) : Median(measured[task]);
    sums_of_key[key]->predicted_s += candidate.played.end_s[task] - candidate.played.start_s[task];
  }
  for (const Sums& one : sums) {
    if (!(one.measured_s > 0 && one.predicted_s > 0)) continue;
    run.ratios.push_back({.key = one.key, .log_ratio = std::log(one.measured_s / one.predicted_s)});
  }
  return run;
}

}  // namespace moeplan::planner
