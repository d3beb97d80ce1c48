#include "planner/search/candidate.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "models/memory/graph_memory.h"
#include "models/text.h"

namespace moeplan {

Candidate MakeCandidate(const Knobs& knobs, TaskGraph graph, GraphPrices prices, double memory_bytes) {
  Candidate candidate;
  candidate.knobs = knobs;
  candidate.played = Play(graph, prices.tasks);
  // Shorter tasks can meet contention that longer ones miss, so an all-low timeline may end after the mid one.
  candidate.low_s = std::min(candidate.time_s(), Play(graph, prices.tasks, Estimate::kLow).total_s);
  candidate.high_s = std::max(candidate.time_s(), Play(graph, prices.tasks, Estimate::kHigh).total_s);
  candidate.memory_bytes = memory_bytes;
  candidate.graph = std::move(graph);
  candidate.prices = std::move(prices);
  return candidate;
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
  if (knobs.chunks > 1) text += StrCat(" with ", knobs.chunks, " chunks");
  if (knobs.partition_degree > 1) text += StrCat(" in ", knobs.partition_degree, " partitions");
  if (knobs.overlapped_gather) text += " with the overlapped gather";
  if (knobs.dispatch_codec != Codec::kNone) text += StrCat(", ", Name(knobs.dispatch_codec), " there");
  if (knobs.combine_codec != Codec::kNone) text += StrCat(", ", Name(knobs.combine_codec), " back");
  return text;
}

}  // namespace moeplan
