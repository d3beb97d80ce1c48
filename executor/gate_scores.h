// The gate's numerics of one token, for host and device alike: logits, scores, chosen experts and the gradients of
// logits. Every sum has one order, so that a token scores alike in any batch, and its logits, scores and choices have
// the same bits on every backend.
//
// Scores are a softmax or sigmoids of the logits (ScoreFunction); probabilities are scores over their sum. Rows of
// logits and scores are `experts` long, what is said of choices `choices`.
#pragma once

#include <cmath>
#include <cstdint>

#include "models/host_and_device.h"
#include "models/workload/workload.h"

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

// 1 / (1 + e^-x), with the same bits on every machine; 0 below -87.
MOEPLAN_HD inline float SigmoidOf(float x) {
  const float share = ExpOf(x < 0 ? x : -x), part = 1 / (1 + share);
  return x < 0 ? Product(share, part) : part;
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

// A GateScore says what the logits and scores of one token are like as a whole.
struct GateScore {
  float largest_probability = 0;  // Of a softmax.
  float log_sum_exp = 0;
  float entropy = 0;      // Of the probabilities, in nats.
  float probability = 1;  // What a score is multiplied with to be one.
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

// A score, and the logarithm of it times it.
struct SigmoidShare {
  float score = 0, weighed = 0;

  MOEPLAN_HD explicit SigmoidShare(float logit)
      : score(SigmoidOf(logit)), weighed(score > 0 ? score * std::log(score) : 0) {}
};

// The same where scores are sigmoids. `of_softmax` is what a softmax of these logits is like, `all` the sum of the
// scores and `weighed` that of the scores, each times its logarithm. A token whose scores are all 0 has no
// probabilities.
MOEPLAN_HD inline GateScore ScoreOfSigmoids(GateScore of_softmax, float all, float weighed) {
  of_softmax.probability = all == 0 ? 0 : 1 / all;
  of_softmax.entropy = all == 0 ? 0 : std::log(all) - weighed / all;
  return of_softmax;
}

// The same of `scores`, which become the sigmoids of `logits`; another row.
MOEPLAN_HD inline GateScore SigmoidsOf(const float* logits, int experts, float* scores) {
  const GateScore of_softmax = SoftmaxOf(logits, experts, scores);
  ScoreSum all, weighed;
  for (int expert = 0; expert < experts; ++expert) {
    const SigmoidShare share(logits[expert]);
    scores[expert] = share.score;
    all.Add(expert, share.score);
    weighed.Add(expert, share.weighed);
  }
  return ScoreOfSigmoids(of_softmax, all.Total(), weighed.Total());
}

// The experts of the largest keys, the largest first, ties to the lower expert. NaNs are passed over; expert 0 where
// they leave none.
MOEPLAN_HD inline void ChooseLargest(const float* keys, int experts, int choices, int32_t* chosen) {
  int before = -1;  // The expert chosen last.
  for (int choice = 0; choice < choices; ++choice) {
    int best = -1;
    for (int expert = 0; expert < experts; ++expert) {
      const float key = keys[expert];
      const bool is_left = before < 0 || key < keys[before] || (key == keys[before] && expert > before);
      if (is_left && key == key && (best < 0 || keys[best] < key)) best = expert;
    }
    chosen[choice] = best < 0 ? 0 : best;
    if (best >= 0) before = best;
  }
}

// The two largest of a group's keys, which are -infinity where there are none. NaNs are passed over.
struct LargestKeys {
  float largest = -INFINITY, second = -INFINITY;

  MOEPLAN_HD void Add(float key) {
    if (key > largest) {
      second = largest;
      largest = key;
    } else if (key > second) {
      second = key;
    }
  }
  // A group is chosen by its largest key, or by the sum of its two largest.
  MOEPLAN_HD float KeyOfGroup(bool sums_two) const {
    const float key = sums_two ? largest + second : largest;
    return key == key ? key : -INFINITY;
  }
};
MOEPLAN_HD inline float KeyOfGroup(const float* keys, int experts_of_group, bool sums_two) {
  LargestKeys keys_of_group;
  for (int expert = 0; expert < experts_of_group; ++expert) keys_of_group.Add(keys[expert]);
  return keys_of_group.KeyOfGroup(sums_two);
}

// The weights of the chosen experts: their scores, of several as parts of their sum unless they are `raw`, times
// `scale`. Scores that are all 0 make weights of 0.
MOEPLAN_HD inline float PartOfChosen(float all, int choices, bool raw) {
  return raw || choices == 1 ? 1 : all == 0 ? 0 : 1 / all;
}
MOEPLAN_HD inline void WeighChosen(const float* scores, const int32_t* chosen, int choices, bool raw, float scale,
                                   float* weights) {
  float all = 0;
  for (int choice = 0; choice < choices; ++choice) all += weights[choice] = scores[chosen[choice]];
  const float part = PartOfChosen(all, choices, raw);
  for (int choice = 0; choice < choices; ++choice) weights[choice] = Product(Product(weights[choice], part), scale);
}

// How the weights of a gate are functions of logits.
struct WeightRule {
  enum Kind {
    kFixed,        // Of nothing.
    kAmongChosen,  // Scores over the sum of those of the chosen.
    kScores,       // Scores.
  };
  Kind kind = kAmongChosen;
  ScoreFunction function = ScoreFunction::kSoftmax;
  float scale = 1;

  // How the logarithm of a chosen expert's score rises with its logit, but for what every logit of a softmax takes off.
  MOEPLAN_HD float SlopeAt(float logit) const { return function == ScoreFunction::kSigmoid ? SigmoidOf(-logit) : 1; }
  // Whether a weight falls with the logits of experts that are not chosen.
  MOEPLAN_HD bool AmongAll() const { return kind == kScores && function == ScoreFunction::kSoftmax; }
};

struct ChoiceGradients {
  const int32_t* experts = nullptr;
  const float* weights = nullptr;
  const float* gradients = nullptr;  // Of the weights.
  int choices = 0;
};

// The gradients of a token's logits from those of its weights.
MOEPLAN_HD inline void LogitGradientsOf(const WeightRule& rule, const float* logits, const float* scores, int experts,
                                        const ChoiceGradients& chosen, float* logit_gradients) {
  float mean = 0;
  for (int choice = 0; choice < chosen.choices; ++choice) {
    mean = AddProduct(mean, chosen.weights[choice], chosen.gradients[choice]);
  }
  for (int expert = 0; expert < experts; ++expert)
    logit_gradients[expert] = rule.AmongAll() ? -scores[expert] * mean : 0;
  if (rule.kind == WeightRule::kFixed) return;
  const float subtracted = rule.kind == WeightRule::kAmongChosen ? mean / rule.scale : 0;
  for (int choice = 0; choice < chosen.choices; ++choice) {
    const int expert = chosen.experts[choice];
    logit_gradients[expert] +=
        chosen.weights[choice] * rule.SlopeAt(logits[expert]) * (chosen.gradients[choice] - subtracted);
  }
}

// How the router's losses rise with one token: with its probabilities by `probability_slopes`, whose mean over the
// token's probabilities is `mean`, and by `z_slope` for each unit of a logit, times that logit's part of a softmax.
struct LossSlopes {
  ScoreFunction function = ScoreFunction::kSoftmax;
  float mean = 0, z_slope = 0;
  GateScore token;

  // The gradient of an expert's logit.
  MOEPLAN_HD float At(float logit, float score, float probability_slope) const {
    if (function == ScoreFunction::kSoftmax) return score * (probability_slope - mean + z_slope);
    const float of_probability = score * token.probability * SigmoidOf(-logit) * (probability_slope - mean);
    return of_probability + (z_slope == 0 ? 0 : z_slope * ExpOf(logit - token.log_sum_exp));
  }
};

// Adds those of the router's losses, which rise by `log_sum_exp_slope` for each unit of the token's logsumexp, times
// that.
MOEPLAN_HD inline void AddLossGradients(ScoreFunction function, const float* logits, const float* scores, int experts,
                                        const float* probability_slopes, float log_sum_exp_slope,
                                        const GateScore& token, float* logit_gradients) {
  float mean = 0;
  for (int expert = 0; expert < experts; ++expert) mean = AddProduct(mean, scores[expert], probability_slopes[expert]);
  const LossSlopes slopes = {function, mean * token.probability, log_sum_exp_slope * token.log_sum_exp, token};
  for (int expert = 0; expert < experts; ++expert) {
    logit_gradients[expert] += slopes.At(logits[expert], scores[expert], probability_slopes[expert]);
  }
}

}  // namespace moeplan::executor
