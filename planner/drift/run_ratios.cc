#include "planner/drift/run_ratios.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "models/fit/statistics.h"
#include "models/text.h"
#include "models/timeline/timeline.h"
#include "planner/search/price_plan.h"

namespace moeplan {
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
  ASSIGN_OR_RETURN(const Candidate candidate, PricePlan(plan, resolved, profile));
  ASSIGN_OR_RETURN(const auto measured, MeasuredS(candidate.graph, ranks));
  RunRatios run = {.predicted_s = candidate.time_s()};
  for (const Timeline& timeline : ranks) {
    if (!timeline.empty()) run.measured_s = std::max(run.measured_s, SpanS(timeline));
  }
  if (!(run.measured_s > 0))
    return InvalidInput("ranks: found no measured task, expected at least one rank's timeline");

  struct Sums {
    double measured_s = 0, predicted_s = 0;
  };
  std::vector<Sums> sums(candidate.prices.keys.size());
  for (size_t task = 0; task < measured.size(); ++task) {
    const int key = candidate.prices.tasks[task].key;
    if (key < 0 || measured[task].empty()) continue;
    const bool shared = Communicates(candidate.graph.tasks[task].kind);
    sums[key].measured_s += shared ? *std::ranges::min_element(measured[task]) : Median(measured[task]);
    sums[key].predicted_s += candidate.played.end_s[task] - candidate.played.start_s[task];
  }
  for (size_t key = 0; key < sums.size(); ++key) {
    if (!(sums[key].measured_s > 0 && sums[key].predicted_s > 0)) continue;
    run.ratios.push_back(
        {.key = candidate.prices.keys[key], .log_ratio = std::log(sums[key].measured_s / sums[key].predicted_s)});
  }
  return run;
}

}  // namespace moeplan
