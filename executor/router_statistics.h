// What a router did with the tokens that one rank answers for: how it spread them, and how sure it was.
//
// Everything kept is a sum over tokens, so that parts add up: the slices of a source batch to the batch, batches to a
// step. Where every MP rank gates the whole batch (all schedules but S1 and ONCE_PER_NODE) they hold the same statistics,
// and one rank of the group is to be counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace moeplan::executor {

// Values only; any thread may read.
struct RouterStatistics {
  int64_t tokens = 0;
  std::vector<int64_t> pairs;           // By expert: (token, choice) pairs before drops.
  std::vector<int64_t> kept;            // By expert: those that got a slot.
  std::vector<double> probability_sum;  // By expert: of the softmax over all experts.
  double squared_log_sum_exp_sum = 0;
  double entropy_sum = 0;  // Of that softmax, in nats.

  // Requires as many experts.
  RouterStatistics& operator+=(const RouterStatistics& other);
  friend bool operator==(const RouterStatistics&, const RouterStatistics&) = default;
};

int64_t AllPairs(const RouterStatistics& statistics);
int64_t DroppedPairs(const RouterStatistics& statistics);

// Means over the tokens; 0 where there is no token.
std::vector<double> MeanProbability(const RouterStatistics& statistics);
double MeanEntropy(const RouterStatistics& statistics);
// The router z-loss (ST-MoE, equation 5): mean of logsumexp(logits)².
double RouterZLoss(const RouterStatistics& statistics);
// The auxiliary loss of Switch Transformers (equation 4), without its factor α: E·Σ f_e·P_e, with f_e the share of the
// pairs that chose expert e, dropped ones included, and P_e the mean probability of e. 1 when both are even. With
// EXPERT_CHOICE every expert has as many pairs, so it is 1 whatever the router does.
// Its gradient takes f_e for a constant.
// It is not linear: of added statistics it is the loss of all their tokens at once, not the mean of the parts' losses.
double LoadBalanceLoss(const RouterStatistics& statistics);

// The sums as a kernel writes them, in device memory. Trivially copyable, no ownership; whole numbers are exact.
struct RouterSums {
  double* tokens = nullptr;
  double* squared_log_sum_exp = nullptr;
  double* entropy = nullptr;
  double *pairs = nullptr, *kept = nullptr, *probability = nullptr;  // [experts]

  // How many numbers they are, and how they lie at `data`, which holds that many.
  static size_t Count(int experts) { return 3 + 3 * static_cast<size_t>(experts); }
  static RouterSums At(double* data, int experts);
};

// Of sums that lie in host memory, as At lays them out.
RouterStatistics StatisticsOf(std::span<const double> sums, int experts);

}  // namespace moeplan::executor
