#include "models/routing/expert_load.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>

#include "models/routing/part_rows.h"
#include "models/workload/groups.h"

namespace moeplan {
namespace {

// Divided by the largest first, so that neither sums overflow nor the smallest numbers lose their digits.
std::vector<double> Normalised(std::vector<double> weights) {
  const double largest = *std::ranges::max_element(weights);
  for (double& weight : weights) weight /= largest;
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= sum;
  return weights;
}

double Sum(std::span<const double> values) { return std::accumulate(values.begin(), values.end(), 0.0); }

// Gives the most pairs that any of so many experts is expected to have, if each token of a source batch chooses each of
// them with the probability mean / tokens.
double MostOf(double experts, double mean, double tokens) {
  mean = std::min(mean, tokens);
  return std::min(tokens, mean + ExpectedLargestNormal(experts) * std::sqrt(mean * (1 - mean / tokens)));
}

// How many pairs the busiest expert is expected to get of any source batch. The j busiest experts have at least the
// mean of the j-th, so that the most of them is at least that of as many alike; the largest such floor of some j is
// given.
double ExpectedBusiest(const Workload& workload) {
  const Layout& layout = workload.layout;
  const double tokens = SizesOf(workload.layer, layout).tokens, experts = workload.layer.experts;
  const double batches = static_cast<double>(std::max(1, layout.data_parallel)) * layout.context_parallel;
  if (IsEven(workload)) return MostOf(batches * experts, workload.layer.top_k * tokens / experts, tokens);
  std::vector<double> pairs = ExpertPairs(workload);
  std::ranges::sort(pairs, std::greater<>());
  double busiest = 0;
  for (size_t first = 1;; first = std::min(2 * first, pairs.size())) {
    busiest = std::max(busiest, MostOf(batches * static_cast<double>(first), pairs[first - 1], tokens));
    if (first == pairs.size()) return busiest;
  }
}

}  // namespace

std::vector<double> ExpertShares(const Workload& workload) {
  const auto& routing = workload.routing;
  if (routing && !routing->skew) return Normalised(routing->tokens_per_expert);
  std::vector<double> weights(workload.layer.experts, 1);
  for (size_t expert = 0; routing && expert < weights.size(); ++expert)
    weights[expert] = std::pow(expert + 1.0, -*routing->skew);
  return Normalised(std::move(weights));
}

bool IsEven(const Workload& workload) {
  const auto& routing = workload.routing;
  if (!routing) return true;
  if (routing->skew) return *routing->skew == 0 || workload.layer.experts == 1;
  return std::ranges::adjacent_find(routing->tokens_per_expert, std::ranges::not_equal_to()) ==
         routing->tokens_per_expert.end();
}

std::vector<double> ExpertPairs(const Workload& workload) {
  std::vector<double> pairs = ExpertShares(workload);
  const double all = workload.layer.top_k * SizesOf(workload.layer, workload.layout).tokens;
  for (double& one : pairs) one *= all;
  return pairs;
}

double SlotsOfExpert(const Workload& workload) {
  const LayerSizes sizes = SizesOf(workload.layer, workload.layout);
  return IsDropless(workload.layer) ? sizes.tokens : sizes.slots;
}

double FactorThatDropsNothing(const Workload& workload) {
  const Layer& layer = workload.layer;
  if (IsEven(workload)) return 1;
  return std::min(std::ranges::max(ExpertShares(workload)), 1.0 / layer.top_k) * layer.experts;
}

int RoundedSlots(int needed) {
  constexpr int kSteps = 16;  // Between a power of two and the next.
  const int step = std::max(1, static_cast<int>(std::bit_floor(static_cast<unsigned>(needed))) / kSteps);
  return (needed + step - 1) / step * step;
}

Workload WithExpectedSlots(Workload workload) {
  if (!IsDropless(workload.layer)) return workload;
  workload.layer.counted_slots = 0;
  const double tokens = SizesOf(workload.layer, workload.layout).tokens;
  double limit = tokens;  // A token chooses an expert once.
  if (workload.layer.receive_factor > 0) {
    limit = std::min(
        limit,
        std::ceil(workload.layer.receive_factor * workload.layer.top_k * tokens / workload.layer.experts - 1e-9));
  }
  const double needed = std::max(1.0, std::ceil(ExpectedBusiest(workload) - 1e-9));
  const double slots = std::min<double>(RoundedSlots(static_cast<int>(needed)), std::max(1.0, limit));
  workload.layer = WithSlots(workload.layer, workload.layout, static_cast<int>(slots));
  return workload;
}

std::vector<double> FilledSlots(const Workload& workload) {
  const double tokens = SizesOf(workload.layer, workload.layout).tokens, slots = SlotsOfExpert(workload);
  std::vector<double> filled = ExpertPairs(workload);
  for (double& one : filled) one = std::min({one, tokens, slots});
  return filled;
}

double DroppedShare(const Workload& workload) {
  const std::vector<double> pairs = ExpertPairs(workload), filled = FilledSlots(workload);
  double dropped = 0;
  for (size_t expert = 0; expert < pairs.size(); ++expert) dropped += pairs[expert] - filled[expert];
  return dropped / (workload.layer.top_k * SizesOf(workload.layer, workload.layout).tokens);
}

double BusiestRatio(std::span<const double> loads) {
  const double sum = Sum(loads);
  return sum > 0 ? *std::ranges::max_element(loads) * static_cast<double>(loads.size()) / sum : 1;
}

std::vector<double> RankLoads(std::span<const double> expert_loads, int expert_parallel) {
  const size_t local = expert_loads.size() / expert_parallel;
  std::vector<double> loads;
  for (int rank = 0; rank < expert_parallel; ++rank) loads.push_back(Sum(expert_loads.subspan(rank * local, local)));
  return loads;
}

SliceRows BusiestSliceRows(const Workload& workload) {
  const double tokens = SizesOf(workload.layer, workload.layout).tokens, slots = SlotsOfExpert(workload);
  const int slices = workload.layout.tensor_parallel;
  const int senders = GroupSize(Group::kExpertShard, workload.layout);
  // What the first j slices send to an expert whose pairs they have c each is min(T, j·c), concave in j. So the first
  // slice sends most, and of all runs of consecutive ranks, which the senders of a group are, those from slice 0 on.
  std::vector<double> to_experts = ExpertPairs(workload);
  SliceRows rows;
  for (double& to_expert : to_experts) {
    const double of_slice = std::min(to_expert, tokens) / slices;
    const auto of_first = [&](int first) { return std::min<double>(slots, first * of_slice); };
    rows.sent += of_first(1);
    to_expert = senders / slices * of_first(slices) + of_first(senders % slices);
  }
  rows.received = std::ranges::max(RankLoads(to_experts, workload.layout.expert_parallel));
  return rows;
}

}  // namespace moeplan
