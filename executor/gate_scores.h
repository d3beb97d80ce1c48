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

// a · b, which device compilers do not fuse with what it is added to.
MOEPLAN_HD inline float Product(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

// e to the power of x, which is not above 0; 0 below -87, where it would no longer be normal; NaN stays NaN. The
// relative error is at most 2^-24 · (2.5 + 1.25 · |x|), not much more than half the last place of x is worth. The bits
// are the same on every machine, which those of libraries are not: tokens and experts are put in order by what comes of
// it.
//
// It is 2^(whole + rest), where `rest` is within half either way. Adding and subtracting kRounding rounds to a whole
// number, which then stands in the lowest bits of the sum.
MOEPLAN_HD inline float ExpOf(float x) {
  constexpr float kLowest = -87, kLog2OfE = 1.44269504F, kRounding = 12582912;
  const float shifted = AddProduct(kRounding, x, kLog2OfE), whole = shifted - kRounding;
  const float rest = AddProduct(-whole, x, kLog2OfE);
  // (2^rest - 1) / rest, interpolated at Chebyshev's nodes.
  float sum = 0.000154531629F;
  sum = AddProduct(0.00133908634F, sum, rest);
  sum = AddProduct(0.00961808256F, sum, rest);
  sum = AddProduct(0.0555035711F, sum, rest);
  sum = AddProduct(0.240226508F, sum, rest);
  sum = AddProduct(0.693147188F, sum, rest);
  sum = AddProduct(1, sum, rest);
  constexpr int kDigits = 23;
  constexpr uint32_t kOne = 0x3f800000;
  const float two_to_whole = __builtin_bit_cast(float, (__builtin_bit_cast(uint32_t, shifted) << kDigits) + kOne);
  return x < kLowest ? 0 : Product(sum, two_to_whole);
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

// A sum over experts is that of so many running sums, of which each has every so-manieth expert. They are added up by
// halves, each of the first half and the one that lies half of them further on, until one is left: so adds a warp of a
// card, whose lanes have a running sum each or, where a few lanes share a token, several.
inline constexpr int kScoreSums = 32;

class ScoreSum {
 public:
  MOEPLAN_HD void Add(int expert, float value) { sums_[expert % kScoreSums] += value; }
  // Once, behind the last Add.
  MOEPLAN_HD float Total() {
    for (int half = kScoreSums / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) sums_[i] += sums_[i + half];
    }
    return sums_[0];
  }

 private:
  float sums_[kScoreSums] = {};
};

// What the probabilities of one token are like as a whole.
struct GateScore {
  float largest_probability = 0;
  float log_sum_exp = 0;
  float entropy = 0;  // In nats.
};

// `highest` is the largest logit, `all` the sum of every expert's share, e to the power of logit - highest, and
// `weighed` the sum of these shares, each times its logit - highest.
MOEPLAN_HD inline GateScore ScoreOf(float highest, float all, float weighed) {
  const float log_all = std::log(all);
  return {.largest_probability = 1 / all, .log_sum_exp = highest + log_all, .entropy = log_all - weighed / all};
}

// `probabilities` become the softmax of `logits` over all experts; they may be the same row. All are NaN where a logit
// is.
MOEPLAN_HD inline GateScore SoftmaxOf(const float* logits, int experts, float* probabilities) {
  float highest = logits[0];
  for (int expert = 1; expert < experts; ++expert) highest = highest < logits[expert] ? logits[expert] : highest;
  ScoreSum all, weighed;
  for (int expert = 0; expert < experts; ++expert) {
    const float below = logits[expert] - highest, share = ExpOf(below);
    probabilities[expert] = share;
    all.Add(expert, share);
    if (share > 0) weighed.Add(expert, share * below);
  }
  const GateScore score = ScoreOf(highest, all.Total(), weighed.Total());
  for (int expert = 0; expert < experts; ++expert) {
    probabilities[expert] = Product(probabilities[expert], score.largest_probability);
  }
  return score;
}

// The experts of the largest logits, the largest first, ties to the lower expert. NaNs are passed over; expert 0 where
// they leave none.
MOEPLAN_HD inline void ChooseLargestLogits(const float* logits, int experts, int choices, int32_t* chosen) {
  int before = -1;  // The expert chosen last.
  for (int choice = 0; choice < choices; ++choice) {
    int best = -1;
    for (int expert = 0; expert < experts; ++expert) {
      const float logit = logits[expert];
      const bool is_left = before < 0 || logit < logits[before] || (logit == logits[before] && expert > before);
      if (is_left && logit == logit && (best < 0 || logits[best] < logit)) best = expert;
    }
    chosen[choice] = best < 0 ? 0 : best;
    if (best >= 0) before = best;
  }
}

// The probabilities of the chosen experts, renormalised to sum 1 where there are several.
MOEPLAN_HD inline void WeighChosen(const float* probabilities, const int32_t* chosen, int choices, float* weights) {
  float all = 0;
  for (int choice = 0; choice < choices; ++choice) all += weights[choice] = probabilities[chosen[choice]];
  if (choices == 1) return;
  const float part = 1 / all;
  for (int choice = 0; choice < choices; ++choice) weights[choice] *= part;
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
