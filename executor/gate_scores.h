// The gate's numerics of one token, for host and device alike: logits, probabilities, chosen experts and the gradients
// of logits. Every sum has one order, so that a token scores alike in any batch, and its logits, probabilities and
// choices have the same bits on every backend.
//
// Rows of scores are `experts` long, what is said of choices `choices`.
#pragma once

#include <cmath>
#include <cstdint>

#include "models/host_and_device.h"

namespace moeplan::executor {

// sum + a · b, rounded twice: device compilers would fuse it.
MOEPLAN_HD inline float AddProduct(float sum, float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(sum, __fmul_rn(a, b));
#else
  return sum + a * b;
#endif
}

MOEPLAN_HD inline double AddWideProduct(double sum, double a, double b) {
#ifdef __CUDA_ARCH__
  return __dadd_rn(sum, __dmul_rn(a, b));
#else
  return sum + a * b;
#endif
}

// e to the power of x, which is not above 0; NaN stays NaN. Right to 0.51 of the last place. Its bits are the same on
// every machine, which those of libraries are not: tokens and experts are put in order by what comes of it.
MOEPLAN_HD inline float ExpOf(float x) {
  constexpr float kLowest = -104;  // From there on down it is 0.
  if (!(x > kLowest)) return x == x ? 0 : x;
  constexpr double kLog2OfE = 1.4426950408889634, kLogOf2 = 0.6931471805599453;
  const int power = static_cast<int>(AddWideProduct(-0.5, x, kLog2OfE));
  const double rest = AddWideProduct(x, -power, kLogOf2);  // At most 0.35 either way.
  double sum = 1.0 / 362880;
  sum = AddWideProduct(1.0 / 40320, sum, rest);
  sum = AddWideProduct(1.0 / 5040, sum, rest);
  sum = AddWideProduct(1.0 / 720, sum, rest);
  sum = AddWideProduct(1.0 / 120, sum, rest);
  sum = AddWideProduct(1.0 / 24, sum, rest);
  sum = AddWideProduct(1.0 / 6, sum, rest);
  sum = AddWideProduct(0.5, sum, rest);
  sum = AddWideProduct(1.0, sum, rest);
  sum = AddWideProduct(1.0, sum, rest);
  constexpr int kBias = 1023, kDigits = 52;
  return static_cast<float>(sum * __builtin_bit_cast(double, static_cast<uint64_t>(power + kBias) << kDigits));
}

// A logit is the sum of so many running sums, wide enough to vectorise, of which each has every so-manieth column, and
// then of the columns that are left over.
inline constexpr int kLogitLanes = 8;

// `token` and `weights` are the left-over columns alone.
MOEPLAN_HD inline float LogitOfLanes(const float* lanes, const float* token, const float* weights, int left_over) {
  float logit = 0;
  for (int lane = 0; lane < kLogitLanes; ++lane) logit += lanes[lane];
  for (int i = 0; i < left_over; ++i) logit = AddProduct(logit, token[i], weights[i]);
  return logit;
}

// What the probabilities of one token are like as a whole.
struct GateScore {
  float largest_probability = 0;
  double log_sum_exp = 0;
  double entropy = 0;  // In nats.
};

// `probabilities` become the softmax of `logits` over all experts; they may be the same row.
MOEPLAN_HD inline GateScore SoftmaxOf(const float* logits, int experts, float* probabilities) {
  float highest = logits[0];
  for (int expert = 1; expert < experts; ++expert) highest = highest < logits[expert] ? logits[expert] : highest;
  float all = 0;
  double weighed = 0;  // Of logit - highest.
  for (int expert = 0; expert < experts; ++expert) {
    const float below = logits[expert] - highest;
    const float share = ExpOf(below);
    probabilities[expert] = share;
    all += share;
    weighed += static_cast<double>(share) * below;
  }
  for (int expert = 0; expert < experts; ++expert) probabilities[expert] /= all;
  const double log_all = std::log(static_cast<double>(all));
  return {.largest_probability = 1 / all,
          .log_sum_exp = highest + log_all,
          .entropy = log_all - weighed / static_cast<double>(all)};
}

// The experts of the largest logits, the largest first, ties to the lower expert. Expert 0 where NaNs leave none.
MOEPLAN_HD inline void ChooseLargestLogits(const float* logits, int experts, int choices, int32_t* chosen) {
  for (int choice = 0; choice < choices; ++choice) {
    const int before = choice == 0 ? -1 : chosen[choice - 1];
    int best = -1;
    for (int expert = 0; expert < experts; ++expert) {
      const float logit = logits[expert];
      const bool is_left = before < 0 || logit < logits[before] || (logit == logits[before] && expert > before);
      if (is_left && (best < 0 || logits[best] < logit)) best = expert;
    }
    chosen[choice] = best < 0 ? 0 : best;
  }
}

// The probabilities of the chosen experts, renormalised to sum 1 where there are several.
MOEPLAN_HD inline void WeighChosen(const float* probabilities, const int32_t* chosen, int choices, float* weights) {
  float all = 0;
  for (int choice = 0; choice < choices; ++choice) all += weights[choice] = probabilities[chosen[choice]];
  if (choices == 1) return;
  for (int choice = 0; choice < choices; ++choice) weights[choice] /= all;
}

// What the weights of a gate are functions of.
enum class WeightKind {
  kFixed,        // Of nothing.
  kAmongChosen,  // A softmax over the chosen logits.
  kAmongAll,     // One over all logits.
};

struct ChoiceGradients {
  const int32_t* experts = nullptr;
  const float* weights = nullptr;
  const float* gradients = nullptr;  // Of the weights.
  int choices = 0;
};

// The gradients of a token's logits from those of its weights.
MOEPLAN_HD inline void LogitGradientsOf(WeightKind kind, const float* probabilities, int experts,
                                        const ChoiceGradients& chosen, float* logit_gradients) {
  float mean = 0;
  for (int choice = 0; choice < chosen.choices; ++choice) {
    mean = AddProduct(mean, chosen.weights[choice], chosen.gradients[choice]);
  }
  for (int expert = 0; expert < experts; ++expert) {
    logit_gradients[expert] = kind == WeightKind::kAmongAll ? -probabilities[expert] * mean : 0;
  }
  if (kind == WeightKind::kFixed) return;
  const float subtracted = kind == WeightKind::kAmongChosen ? mean : 0;
  for (int choice = 0; choice < chosen.choices; ++choice) {
    logit_gradients[chosen.experts[choice]] += chosen.weights[choice] * (chosen.gradients[choice] - subtracted);
  }
}

// Adds those of the router's losses, which rise with the token's probabilities by `probability_slopes`, and with its
// logsumexp by `log_sum_exp_slope` for each unit of it.
MOEPLAN_HD inline void AddLossGradients(const float* probabilities, int experts, const float* probability_slopes,
                                        float log_sum_exp_slope, float log_sum_exp, float* logit_gradients) {
  float mean = 0;
  for (int expert = 0; expert < experts; ++expert) {
    mean = AddProduct(mean, probabilities[expert], probability_slopes[expert]);
  }
  const float of_log_sum_exp = log_sum_exp_slope * log_sum_exp;
  for (int expert = 0; expert < experts; ++expert) {
    logit_gradients[expert] += probabilities[expert] * (probability_slopes[expert] - mean + of_log_sum_exp);
  }
}

}  // namespace moeplan::executor
