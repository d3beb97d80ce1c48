#include "planner/search/candidate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "models/memory/graph_memory.h"
#include "models/schedule/chunk_units.h"
#include "models/text.h"

namespace moeplan::planner {

Candidate MakeCandidate(const Knobs& knobs, TaskGraph graph, GraphPrices prices, double memory_bytes) {
  Candidate candidate;
  candidate.knobs = knobs;
  candidate.played = Play(graph, prices.tasks);
  candidate.low_s = candidate.high_s = candidate.time_s();
  candidate.memory_bytes = memory_bytes;
  candidate.graph = std::move(graph);
  candidate.prices = std::move(prices);
  return candidate;
}

namespace {

// What all costs together were off by, 90 % of the time, when a cluster ran hours after it was measured
// (docs/decisions/0010).
constexpr double kBetweenRuns = 0.07;

// By how much the graph ends later when the tasks of one cost differ.
template <typename Change>
double LaterBy(const Candidate& candidate, int key, Change change) {
  std::vector<TaskPrice> prices = candidate.prices.tasks;
  for (TaskPrice& price : prices) {
    if (price.key == key) change(price);
  }
  return Play(candidate.graph, prices).total_s - candidate.time_s();
}

}  // namespace

void AddInterval(Candidate& candidate, const StopSignals& stop) {
  double earlier_s = 0, later_s = 0;
  bool measured = false;
  // Shorter tasks can meet contention that longer ones miss, so that a graph of them may even end later.
  const auto count = [&](double change_s) {
    double& sum_s = change_s < 0 ? earlier_s : later_s;
    sum_s = std::hypot(sum_s, change_s);
  };
  for (int key = 0; key < static_cast<int>(candidate.prices.keys.size()) && !stop.Requested(); ++key) {
    const auto any = [&](auto uncertain) {
      const bool found = std::ranges::any_of(
          candidate.prices.tasks, [&](const TaskPrice& price) { return price.key == key && uncertain(price); });
      measured = measured || found;
      return found;
    };
    if (any([](const TaskPrice& price) { return price.low_s < price.high_s; })) {
      count(LaterBy(candidate, key, [](TaskPrice& price) { price.time_s = price.low_s; }));
      count(LaterBy(candidate, key, [](TaskPrice& price) { price.time_s = price.high_s; }));
    }
    if (any([](const TaskPrice& price) { return price.slowdown_low != price.slowdown_high; })) {
      count(LaterBy(candidate, key, [](TaskPrice& price) { price.slowdown = price.slowdown_low; }));
      count(LaterBy(candidate, key, [](TaskPrice& price) { price.slowdown = price.slowdown_high; }));
    }
  }
  candidate.own_error_s = (earlier_s + later_s) / 2;
  if (measured) {
    count(-kBetweenRuns * candidate.time_s());
    count(kBetweenRuns * candidate.time_s());
  }
  candidate.low_s = std::max(0.0, candidate.time_s() - earlier_s);
  candidate.high_s = candidate.time_s() + later_s;
}

double IndistinctGainS(const Candidate& candidate) {
  constexpr double kIndistinctGain = 0.03;
  return std::min(kIndistinctGain * candidate.time_s(), candidate.own_error_s);
}

namespace {

std::vector<std::string> NamesByStart(const TaskGraph& graph, const PlayedGraph& played) {
  std::vector<int> tasks(graph.tasks.size());
  std::iota(tasks.begin(), tasks.end(), 0);
  std::stable_sort(tasks.begin(), tasks.end(), [&](int a, int b) { return played.start_s[a] < played.start_s[b]; });
  std::vector<std::string> names;
  for (const int task : tasks) names.push_back(graph.tasks[task].name);
  return names;
}

}  // namespace

Plan PlanOf(const Candidate& candidate) {
  Plan plan;
  plan.knobs = candidate.knobs;
  plan.order = NamesByStart(candidate.graph, candidate.played);
  plan.predicted_time_s = candidate.time_s();
  plan.low_s = candidate.low_s;
  plan.high_s = candidate.high_s;
  plan.communication_time_s = candidate.played.communication_time_s;
  plan.exposed_communication_s = candidate.played.exposed_communication_s;
  plan.compute_time_s = candidate.played.compute_time_s;
  plan.memory_bytes = candidate.memory_bytes;
  plan.timeline = TimelineOf(candidate.graph, candidate.played);
  plan.gradients = candidate.gradients;
  return plan;
}

std::string Describe(const Knobs& knobs) {
  std::string text(Name(knobs.family));
  if (knobs.all_to_all != AllToAllAlgorithm::kDirect) text += StrCat(" with ", Name(knobs.all_to_all));
  if (knobs.communication_ctas != 0) text += StrCat(" with ", knobs.communication_ctas, " CTAs");
  if (knobs.chunks > 1) text += StrCat(" with ", knobs.chunks, " chunks");
  if (knobs.partition_degree > 1) text += StrCat(" in ", knobs.partition_degree, " partitions");
  if (!knobs.chunk_shares.empty()) text += StrCat(" of sizes ", RatioOf(knobs.chunk_shares));
  if (knobs.overlapped_gather) text += " with the overlapped gather";
  if (knobs.dispatch_codec != Codec::kNone) text += StrCat(", ", Name(knobs.dispatch_codec), " there");
  if (knobs.combine_codec != Codec::kNone) text += StrCat(", ", Name(knobs.combine_codec), " back");
  return text;
}

}  // namespace moeplan::planner
