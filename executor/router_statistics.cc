#include "executor/router_statistics.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "models/check.h"

namespace moeplan::executor {
namespace {

template <typename Number>
void Add(std::vector<Number>& to, const std::vector<Number>& from) {
  MOEPLAN_CHECK(to.size() == from.size());
  std::ranges::transform(to, from, to.begin(), std::plus());
}

double PerToken(double sum, const RouterStatistics& statistics) {
  return statistics.tokens == 0 ? 0 : sum / static_cast<double>(statistics.tokens);
}

int64_t SumOf(const std::vector<int64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

}  // namespace

RouterStatistics& RouterStatistics::operator+=(const RouterStatistics& other) {
  tokens += other.tokens;
  Add(pairs, other.pairs);
  Add(kept, other.kept);
  Add(probability_sum, other.probability_sum);
  squared_log_sum_exp_sum += other.squared_log_sum_exp_sum;
  entropy_sum += other.entropy_sum;
  return *this;
}

int64_t AllPairs(const RouterStatistics& statistics) { return SumOf(statistics.pairs); }

int64_t DroppedPairs(const RouterStatistics& statistics) { return AllPairs(statistics) - SumOf(statistics.kept); }

std::vector<double> MeanProbability(const RouterStatistics& statistics) {
  std::vector<double> mean;
  for (const double sum : statistics.probability_sum) mean.push_back(PerToken(sum, statistics));
  return mean;
}

double MeanEntropy(const RouterStatistics& statistics) { return PerToken(statistics.entropy_sum, statistics); }

double RouterZLoss(const RouterStatistics& statistics) {
  return PerToken(statistics.squared_log_sum_exp_sum, statistics);
}

double LoadBalanceLoss(const RouterStatistics& statistics) {
  const int64_t pairs = AllPairs(statistics);
  if (pairs == 0) return 0;
  const std::vector<double> mean = MeanProbability(statistics);
  const double weighted = std::inner_product(mean.begin(), mean.end(), statistics.pairs.begin(), 0.0);
  return static_cast<double>(mean.size()) * weighted / static_cast<double>(pairs);
}

RouterSums RouterSums::At(double* data, int experts) {
  return {.tokens = data,
          .squared_log_sum_exp = data + 1,
          .entropy = data + 2,
          .pairs = data + 3,
          .kept = data + 3 + experts,
          .probability = data + 3 + 2 * static_cast<size_t>(experts)};
}

RouterStatistics StatisticsOf(std::span<const double> sums, int experts) {
  const auto by_expert = [&](size_t which) { return sums.subspan(3 + which * experts, experts); };
  const auto pairs = by_expert(0), kept = by_expert(1), probability = by_expert(2);
  return {.tokens = static_cast<int64_t>(sums[0]),
          .pairs = {pairs.begin(), pairs.end()},
          .kept = {kept.begin(), kept.end()},
          .probability_sum = {probability.begin(), probability.end()},
          .squared_log_sum_exp_sum = sums[1],
          .entropy_sum = sums[2]};
}

}  // namespace moeplan::executor
