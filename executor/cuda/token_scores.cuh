// A number for each expert of one token, in the registers of a group of `kLanes` neighbouring lanes of a warp: the n-th
// of a lane's `kScores` is that of the expert ExpertAt(lane, n). Sums have the order of executor/gate_scores.h. All
// lanes of a warp call together, those of other tokens with theirs, and all lanes of a group get a result.
#pragma once

#include <cmath>

#include "executor/cuda/access.cuh"
#include "executor/cuda/launch.h"
#include "executor/gate_scores.h"

namespace moeplan::executor::cuda {

template <int kLanes, int kScores>
struct TokenScores {
  float values[kScores];

  __device__ static int ExpertAt(int lane, int n) { return lane + n * kLanes; }

  // Reads a row of `experts` numbers; `other` stands for the experts behind them. Rows of whole 16 bytes begin at a
  // multiple of them.
  __device__ static TokenScores Load(const float* row, int lane, int experts, float other) {
    TokenScores scores;
    constexpr int kCount = kAccessBytes / sizeof(float);
    if (kLanes == 1 && experts % kCount == 0) {
#pragma unroll
      for (int n = 0; n < kScores; n += kCount) {
        Access<float, kCount> access = {{other, other, other, other}};
        if (n < experts) access = *reinterpret_cast<const Access<float, kCount>*>(row + n);
#pragma unroll
        for (int i = 0; i < kCount; ++i) scores.values[n + i] = access.elements[i];
      }
      return scores;
    }
#pragma unroll
    for (int n = 0; n < kScores; ++n) {
      scores.values[n] = ExpertAt(lane, n) < experts ? (row + lane)[n * kLanes] : other;
    }
    return scores;
  }

  // The largest; NaNs are passed over unless there is nothing else.
  __device__ float Highest() const {
    float highest = values[0];
#pragma unroll
    for (int n = 1; n < kScores; ++n) highest = fmaxf(highest, values[n]);
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, distance));
    }
    return highest;
  }

  // The sum over all experts, as ScoreSum has it, of value(n) for the n-th of a lane.
  template <typename Value>
  __device__ static float SumOf(Value value) {
    constexpr int kSums = kScores * kLanes < kScoreSums ? kScores : kScoreSums / kLanes;
    float sums[kSums];
#pragma unroll
    for (int n = 0; n < kSums; ++n) sums[n] = value(n);
#pragma unroll
    for (int n = kSums; n < kScores; ++n) sums[n % kSums] += value(n);
    AddHalves<kSums / 2>(sums);
    float sum = sums[0];
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(0xffffffff, sum, distance);
    }
    return sum;
  }

  // Not a loop over halves, which compilers leave one where the sums are 16, and the sums in memory.
  template <int kHalf>
  __device__ static void AddHalves(float* sums) {
    if constexpr (kHalf > 0) {
#pragma unroll
      for (int n = 0; n < kHalf; ++n) sums[n] += sums[n + kHalf];
      AddHalves<kHalf / 2>(sums);
    }
  }

  // The lowest expert whose number is `value`; kNone where there is none.
  static constexpr int kNone = 1 << 30;
  __device__ int FirstOf(float value, int lane) const {
    int first = kNone;
#pragma unroll
    for (int n = kScores - 1; n >= 0; --n) {
      if (values[n] == value) first = ExpertAt(lane, n);
    }
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      first = min(first, __shfl_xor_sync(0xffffffff, first, distance));
    }
    return first;
  }

  // Makes `value` the number of one expert.
  __device__ void Set(int expert, int lane, float value) {
#pragma unroll
    for (int n = 0; n < kScores; ++n) {
      if (expert == ExpertAt(lane, n)) values[n] = value;
    }
  }
  __device__ void PassOver(int expert, int lane) { Set(expert, lane, NAN); }
};

// Logits, of which `highest` is the largest, to every expert's share of the softmax, and what GateScore says of them.
template <int kLanes, int kScores>
__device__ GateScore SharesOf(const TokenScores<kLanes, kScores>& logits, float highest,
                              TokenScores<kLanes, kScores>& shares) {
#pragma unroll
  for (int n = 0; n < kScores; ++n) shares.values[n] = ExpOf(logits.values[n] - highest);
  const auto weighed = [&](int n) {
    return shares.values[n] > 0 ? shares.values[n] * (logits.values[n] - highest) : 0;
  };
  using Scores = TokenScores<kLanes, kScores>;
  return ScoreOf(highest, Scores::SumOf([&](int n) { return shares.values[n]; }), Scores::SumOf(weighed));
}

// The same of `scores`, which become the sigmoids of logits.
template <int kLanes, int kScores>
__device__ GateScore SigmoidsOf(const TokenScores<kLanes, kScores>& logits, float highest,
                                TokenScores<kLanes, kScores>& scores) {
  const GateScore of_softmax = SharesOf(logits, highest, scores);
  const auto weighed = [&](int n) {
    const SigmoidShare share(logits.values[n]);
    scores.values[n] = share.score;
    return share.weighed;
  };
  using Scores = TokenScores<kLanes, kScores>;
  const float all_weighed = Scores::SumOf(weighed);
  return ScoreOfSigmoids(of_softmax, Scores::SumOf([&](int n) { return scores.values[n]; }), all_weighed);
}

// The largest group has room for so many experts.
inline constexpr int kMostScores = 2048;

// Calls function(Constant<lanes>, Constant<scores>), so that a group has room for the experts of a token.
template <typename Function>
void ForScores(int experts, Function function) {
  if (experts <= 8) return function(Constant<1>{}, Constant<8>{});
  if (experts <= 16) return function(Constant<1>{}, Constant<16>{});
  if (experts <= 32) return function(Constant<4>{}, Constant<8>{});
  if (experts <= 64) return function(Constant<4>{}, Constant<16>{});
  if (experts <= 128) return function(Constant<8>{}, Constant<16>{});
  if (experts <= 256) return function(Constant<16>{}, Constant<16>{});
  if (experts <= 512) return function(Constant<32>{}, Constant<16>{});
  if (experts <= 1024) return function(Constant<32>{}, Constant<32>{});
  function(Constant<32>{}, Constant<64>{});
}

}  // namespace moeplan::executor::cuda
