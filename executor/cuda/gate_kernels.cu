#include "executor/cuda/gate_kernels.h"

#include <algorithm>

#include "executor/cuda/access.cuh"
#include "executor/cuda/errors.h"
#include "executor/cuda/gate_logits.h"
#include "executor/cuda/gate_order.h"
#include "executor/cuda/launch.h"
#include "executor/cuda/scan.cuh"
#include "executor/cuda/start.cuh"
#include "executor/cuda/token_scores.cuh"
#include "executor/gate_draws.h"

namespace moeplan::executor::cuda {
namespace {

// The arguments that all kernels of a gate share.
struct Chosen {
  GateShape shape;
  TokenRows tokens;
  Routing routing;
  GateScratch scratch;
  const float* correction_bias = nullptr;
  int capacity = 0, own_block = 0;
  CarriedCounts carried;
  bool limits_groups = false;
  GateLaunch launch;

  __device__ int64_t FirstRow(int block) const { return static_cast<int64_t>(block) * tokens.rows_per_block; }
  __device__ int64_t Pairs() const { return static_cast<int64_t>(tokens.valid_rows) * shape.choices; }
  __device__ int64_t PairsOfThreadBlock() const {
    return static_cast<int64_t>(launch.tokens_per_block) * shape.choices;
  }
  __device__ int64_t CountAt(int block, int expert, int thread_block) const {
    return (static_cast<int64_t>(block) * shape.experts + expert) * launch.blocks + thread_block;
  }
  // The pair of the block whose turn comes after that of `turn` others. Of all gates whose tokens choose.
  __device__ int64_t PairInTurn(int block, int64_t turn) const {
    const int64_t first_row = FirstRow(block);
    if (shape.gate != GateKind::kBatchPrioritized) return first_row * shape.choices + turn;
    const int64_t token = scratch.items[first_row + turn % tokens.valid_rows];
    return (first_row + token) * shape.choices + turn / tokens.valid_rows;
  }
};

template <typename Element>
__device__ uint64_t KeyOfRow(const std::byte* rows, int64_t row, int columns) {
  const Element* const values = reinterpret_cast<const Element*>(rows) + row * columns;
  uint64_t key = kDrawSeed;
  for (int column = 0; column < columns; ++column) key = KeyWithValue(key, ValueOf(values[column]));
  return key;
}

// With HASH, of a row of the tokens, else of its place in the source batch.
__device__ uint64_t DrawKey(const Chosen& chosen, int64_t row, int index) {
  if (chosen.shape.gate == GateKind::kRandom) {
    return KeyOfToken(chosen.carried.FirstToken() + chosen.tokens.first_token + index);
  }
  const RowShape& rows = chosen.shape.rows;
  return rows.type == ElementType::kFloat32 ? KeyOfRow<float>(chosen.tokens.data, row, rows.columns)
                                            : KeyOfRow<Bfloat16>(chosen.tokens.data, row, rows.columns);
}

// With RANDOM and HASH, what the tokens draw, a thread for a token.
__global__ void DrawKernel(const __grid_constant__ Chosen chosen) {
  const int choices = chosen.shape.choices, stride = static_cast<int>(gridDim.x) * kThreads;
  for (int index = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
       index < chosen.tokens.valid_rows; index += stride) {
    const int64_t row = chosen.FirstRow(static_cast<int>(blockIdx.y)) + index;
    DrawExperts(DrawKey(chosen, row, index), chosen.shape.experts, choices, chosen.routing.expert + row * choices);
    for (int choice = 0; choice < choices; ++choice) {
      chosen.routing.weight[row * choices + choice] = 1.0F / static_cast<float>(choices);
    }
  }
}

// The shared memory of a thread block of ChooseKernel.
struct ChooseMemory {
  int32_t* counts;  // [experts]: its pairs.
  float* sums;      // [experts + kSumsOfAll]
  float* weights;   // [choices][tokens at a time]: the probabilities of what they chose.

  // Behind the sums of each expert's probabilities those of logsumexp² and of the entropy.
  static constexpr int kSumsOfAll = 2;
  __device__ explicit ChooseMemory(int experts)
      : counts(reinterpret_cast<int32_t*>(DynamicSharedMemory())),
        sums(reinterpret_cast<float*>(counts + experts)),
        weights(sums + experts + kSumsOfAll) {}
  static size_t Bytes(int experts, int choices, int lanes) {
    return sizeof(float) * (2 * experts + kSumsOfAll + static_cast<size_t>(choices) * (kGateThreads / lanes));
  }
};

// The whole of a token's logits, and the largest of them.
struct TokenScore {
  GateScore gate;
  float highest = 0;

  __device__ float Softmax(float logit) const { return Product(ExpOf(logit - highest), gate.largest_probability); }
};

// The experts of the largest keys and their weights, as ChooseLargest and WeighChosen have them; without kRules keys
// are the logits, and the router is one by default. Lane n of a group writes the choices n, n + kLanes, ...
template <bool kRules, int kLanes, int kScores>
__device__ void ChooseExperts(const Chosen& chosen, const ChooseMemory& memory, TokenScores<kLanes, kScores> keys,
                              const TokenScore& score, int64_t row, bool is_token) {
  constexpr int kTokens = kGateThreads / kLanes;
  const Router& router = chosen.shape.router;
  const int lane = static_cast<int>(threadIdx.x) % kLanes, choices = chosen.shape.choices;
  float* const own_weights = memory.weights + static_cast<int>(threadIdx.x) / kLanes;
  float all = 0;
  for (int choice = 0; choice < choices; ++choice) {
    const float largest = choice == 0 && !kRules ? score.highest : keys.Highest();
    const int found = keys.FirstOf(largest, lane), expert = found < chosen.shape.experts ? found : 0;
    const float logit = kRules ? chosen.scratch.logits[row * chosen.shape.experts + expert] : largest;
    const bool sigmoid = kRules && router.score_function == ScoreFunction::kSigmoid;
    const float weight = sigmoid ? SigmoidOf(logit) : score.Softmax(logit);
    keys.PassOver(found, lane);
    all += weight;
    if (!is_token || lane != choice % kLanes) continue;
    own_weights[choice * kTokens] = weight;
    chosen.routing.expert[row * choices + choice] = expert;
    atomicAdd(&memory.counts[expert], 1);
  }
  const float part = PartOfChosen(all, choices, kRules && router.raw_weights);
  for (int choice = lane; is_token && choice < choices; choice += kLanes) {
    const float weight = Product(own_weights[choice * kTokens], part);
    chosen.routing.weight[row * choices + choice] =
        kRules ? Product(weight, static_cast<float>(router.weight_scale)) : weight;
  }
}

// The keys that a token chooses experts by, as MakeKeys of executor/host/gating.cc has them: logits, or corrected
// scores.
template <int kLanes, int kScores>
__device__ TokenScores<kLanes, kScores> KeysOf(const Chosen& chosen, const TokenScores<kLanes, kScores>& logits,
                                               const TokenScores<kLanes, kScores>& scores) {
  if (chosen.correction_bias == nullptr) return logits;
  TokenScores<kLanes, kScores> keys;
#pragma unroll
  for (int n = 0; n < kScores; ++n) {
    const int expert = keys.ExpertAt(static_cast<int>(threadIdx.x) % kLanes, n);
    keys.values[n] = expert < chosen.shape.experts ? scores.values[n] + chosen.correction_bias[expert] : -INFINITY;
  }
  return keys;
}

// Passes over the experts outside of the token's best groups, likewise.
template <int kLanes, int kScores>
__device__ void LimitToGroups(const Chosen& chosen, TokenScores<kLanes, kScores>& keys) {
  const Router& router = chosen.shape.router;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const unsigned of_group = chosen.shape.experts / router.expert_groups;
  const auto is_within = [&](int n, int group) {
    return static_cast<unsigned>(keys.ExpertAt(lane, n)) - group * of_group < of_group;
  };
  TokenScores<kLanes, kScores> group_keys;  // Groups stand in the place of experts.
#pragma unroll
  for (int n = 0; n < kScores; ++n) group_keys.values[n] = NAN;
  for (int group = 0; group < router.expert_groups; ++group) {
    LargestKeys largest;
#pragma unroll
    for (int n = 0; n < kScores; ++n) {
      if (is_within(n, group)) largest.Add(keys.values[n]);
    }
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      const float second = __shfl_xor_sync(0xffffffff, largest.second, distance);
      largest.Add(__shfl_xor_sync(0xffffffff, largest.largest, distance));
      largest.Add(second);
    }
    group_keys.Set(group, lane, largest.KeyOfGroup(router.correction_bias));
  }
  uint64_t is_left = 0;  // Bit n: the n-th expert of this lane.
  static_assert(kScores <= 64);
  for (int i = 0; i < router.groups_per_token; ++i) {
    const int best = group_keys.FirstOf(group_keys.Highest(), lane);
    group_keys.PassOver(best, lane);
#pragma unroll
    for (int n = 0; n < kScores; ++n) is_left |= static_cast<uint64_t>(is_within(n, best)) << n;
  }
#pragma unroll
  for (int n = 0; n < kScores; ++n) {
    if ((is_left >> n & 1) == 0) keys.values[n] = NAN;
  }
}

// With EXPERT_CHOICE: every expert may take every token.
template <int kLanes, int kScores>
__device__ void OfferToken(const Chosen& chosen, const TokenScores<kLanes, kScores>& shares, float scale, int block,
                           int index) {
  const int experts = chosen.shape.experts, lane = static_cast<int>(threadIdx.x) % kLanes;
#pragma unroll
  for (int n = 0; n < kScores; ++n) {
    const int expert = shares.ExpertAt(lane, n);
    if (expert >= experts) continue;
    const float probability = Product(shares.values[n], scale);
    const int64_t pair = (chosen.FirstRow(block) + index) * experts + expert;
    chosen.routing.expert[pair] = expert;
    chosen.routing.slot[pair] = -1;
    chosen.routing.weight[pair] = probability;
    const int64_t list = static_cast<int64_t>(block) * experts + expert;
    chosen.scratch.keys[list * chosen.tokens.rows_per_block + index] = OrderOf(probability);
  }
}

// The sums of statistics over the tokens of one lane.
template <int kLanes, int kScores>
struct LaneSums {
  TokenScores<kLanes, kScores> probabilities = {};
  float squared_log_sum_exp = 0, entropy = 0;

  // `scale` times shares are probabilities.
  __device__ void Add(const TokenScores<kLanes, kScores>& shares, float scale, const GateScore& score) {
#pragma unroll
    for (int n = 0; n < kScores; ++n) probabilities.values[n] += shares.values[n] * scale;
    squared_log_sum_exp += score.log_sum_exp * score.log_sum_exp;
    entropy += score.entropy;
  }

  // Adds those of all tokens of the thread block to `sums`, one warp after the other, and begins anew.
  __device__ void AddUp(float* sums, int experts) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int n = 0; n < kScores; ++n) probabilities.values[n] = OverTokens(probabilities.values[n]);
    squared_log_sum_exp = OverTokens(squared_log_sum_exp);
    entropy = OverTokens(entropy);
    for (int warp = 0; warp < kGateThreads / 32; ++warp) {
      if (thread / 32 == warp && thread % 32 < kLanes) {
#pragma unroll
        for (int n = 0; n < kScores; ++n) {
          const int expert = probabilities.ExpertAt(thread % 32, n);
          if (expert < experts) sums[expert] += probabilities.values[n];
        }
        if (thread % 32 == 0) {
          sums[experts] += squared_log_sum_exp;
          sums[experts + 1] += entropy;
        }
      }
      __syncthreads();
    }
    *this = {};
  }
  // Over the tokens of a warp.
  __device__ static float OverTokens(float value) {
#pragma unroll
    for (int distance = 16; distance >= kLanes; distance /= 2) value += __shfl_xor_sync(0xffffffff, value, distance);
    return value;
  }
};

// Scores tokens, kLanes lanes for one of them, and lets them choose. Counts the pairs of each expert unless they take
// turns in another order than their tokens', or are drawn. kRules: the router is not the default one.
template <int kLanes, int kScores, bool kRules>
__global__ void __launch_bounds__(kGateThreads, kScores > 16 ? 1
                                                : kRules     ? 4
                                                             : 5) ChooseKernel(const __grid_constant__ Chosen chosen) {
  constexpr int kTokens = kGateThreads / kLanes;
  const int experts = chosen.shape.experts, thread = static_cast<int>(threadIdx.x);
  const int block = static_cast<int>(blockIdx.y), first = static_cast<int>(blockIdx.x) * chosen.launch.tokens_per_block;
  const int end = min(first + chosen.launch.tokens_per_block, chosen.tokens.valid_rows);
  const bool is_own = block == chosen.own_block;
  const ChooseMemory memory(experts);
  for (int i = thread; i < experts; i += kGateThreads) memory.counts[i] = 0;
  for (int i = thread; i < experts + ChooseMemory::kSumsOfAll; i += kGateThreads) memory.sums[i] = 0;
  __syncthreads();

  LaneSums<kLanes, kScores> sums;
  for (int start = first; start < end; start += kTokens) {
    const int index = start + thread / kLanes;
    const bool is_token = index < end;
    const int64_t row = chosen.FirstRow(block) + (is_token ? index : start);
    const auto logits = TokenScores<kLanes, kScores>::Load(chosen.scratch.logits + row * experts, thread % kLanes,
                                                           experts, /*other=*/-INFINITY);
    TokenScores<kLanes, kScores> shares;
    TokenScore score = {.highest = logits.Highest()};
    const bool sigmoid = kRules && chosen.shape.router.score_function == ScoreFunction::kSigmoid;
    score.gate = sigmoid ? SigmoidsOf(logits, score.highest, shares) : SharesOf(logits, score.highest, shares);
    const float scale = sigmoid ? score.gate.probability : score.gate.largest_probability;
    if constexpr (kRules) {
      auto keys = KeysOf(chosen, logits, shares);
      if (chosen.limits_groups) LimitToGroups(chosen, keys);
      ChooseExperts<kRules>(chosen, memory, keys, score, row, is_token);
    } else if (chosen.shape.chooses_largest()) {
      ChooseExperts<kRules>(chosen, memory, logits, score, row, is_token);
    } else if (chosen.shape.gate == GateKind::kExpertChoice && is_token) {
      OfferToken(chosen, shares, scale, block, index);
    }
    if (chosen.shape.gate == GateKind::kBatchPrioritized && is_token && thread % kLanes == 0) {
      chosen.scratch.keys[row] = OrderOf(scale);
    }
    if (is_token && is_own) sums.Add(shares, scale, score.gate);
    if (kScores > 32 && is_own) sums.AddUp(memory.sums, experts);  // Lanes have no registers to keep them in.
  }
  __syncthreads();
  const int blocks = chosen.launch.blocks, own = static_cast<int>(blockIdx.x);
  if (chosen.shape.counts_in_order()) {
    for (int i = thread; i < experts; i += kGateThreads) {
      chosen.scratch.block_counts[chosen.CountAt(block, i, own)] = memory.counts[i];
    }
  }
  if (!is_own) return;
  sums.AddUp(memory.sums, experts);
  for (int i = thread; i < experts + ChooseMemory::kSumsOfAll; i += kGateThreads) {
    chosen.scratch.block_sums[static_cast<int64_t>(i) * blocks + own] = memory.sums[i];
  }
}

// The pairs of each expert among those whose turn comes in this thread block, where ChooseKernel has not counted them.
__global__ void __launch_bounds__(kGateThreads) CountKernel(const __grid_constant__ Chosen chosen) {
  auto* const counts = reinterpret_cast<int32_t*>(DynamicSharedMemory());
  const int experts = chosen.shape.experts, thread = static_cast<int>(threadIdx.x),
            block = static_cast<int>(blockIdx.y);
  const int64_t first = blockIdx.x * chosen.PairsOfThreadBlock(),
                end = min(first + chosen.PairsOfThreadBlock(), chosen.Pairs());
  for (int i = thread; i < experts; i += kGateThreads) counts[i] = 0;
  __syncthreads();
  for (int64_t turn = first + thread; turn < end; turn += kGateThreads) {
    atomicAdd(&counts[chosen.routing.expert[chosen.PairInTurn(block, turn)]], 1);
  }
  __syncthreads();
  for (int i = thread; i < experts; i += kGateThreads) {
    chosen.scratch.block_counts[chosen.CountAt(block, i, static_cast<int>(blockIdx.x))] = counts[i];
  }
}

// A block for each expert of each source batch: counts of thread blocks become how many pairs came before them. Those
// behind the last expert are for the sums that are not of an expert.
__global__ void SumUpKernel(const __grid_constant__ Chosen chosen, int32_t* counts, RouterSums sums) {
  constexpr int kCounts = kMostGateBlocks / kThreads;
  const int row = static_cast<int>(blockIdx.x), block = static_cast<int>(blockIdx.y), blocks = chosen.launch.blocks;
  const bool experts_choose = chosen.shape.gate == GateKind::kExpertChoice;
  int32_t before = experts_choose ? min(chosen.capacity, chosen.tokens.valid_rows) : 0;
  if (row < chosen.shape.experts && !experts_choose) {
    int32_t* const own = chosen.scratch.block_counts + chosen.CountAt(block, row, 0);
    const int first = static_cast<int>(threadIdx.x) * kCounts;
    int32_t pairs[kCounts], of_thread = 0;
#pragma unroll
    for (int i = 0; i < kCounts; ++i) of_thread += pairs[i] = first + i < blocks ? own[first + i] : 0;
    const RunningSum<int32_t> found = SumUpToHere(of_thread);
    int32_t up_to_here = found.up_to_here - of_thread;
#pragma unroll
    for (int i = 0; i < kCounts; ++i) {
      if (first + i < blocks) own[first + i] = up_to_here;
      up_to_here += pairs[i];
    }
    before = found.all;
  }
  if (row < chosen.shape.experts && threadIdx.x == 0 && chosen.carried.now != nullptr) {
    const int i = block * chosen.shape.experts + row;
    chosen.carried.now[i] = chosen.carried.earlier[i] + before;
  }
  if (block != chosen.own_block) return;
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += kThreads) {
    sum += chosen.scratch.block_sums[static_cast<int64_t>(row) * blocks + i];
  }
  const double all = SumUpToHere(sum).all;
  if (threadIdx.x != 0) return;
  if (row == chosen.shape.experts) *sums.squared_log_sum_exp = all;
  if (row == chosen.shape.experts + 1) *sums.entropy = all;
  if (row >= chosen.shape.experts) return;
  if (row == 0) *sums.tokens = chosen.tokens.valid_rows;
  if (counts != nullptr) counts[row] = before;
  sums.pairs[row] = before;
  sums.kept[row] = min(before, chosen.carried.RoomFor(block * chosen.shape.experts + row, chosen.capacity));
  sums.probability[row] = all;
}

// The pairs of a warp follow each other, of a thread block warp by warp. A warp counts its own, then every warp knows
// how many pairs of an expert come before it, and gives its own their slots, 32 pairs at a time.
__global__ void __launch_bounds__(kGateThreads) SlotsKernel(const __grid_constant__ Chosen chosen) {
  constexpr int kWarps = kGateThreads / 32, kAtOnce = 4;
  auto* const counts = reinterpret_cast<int32_t*>(DynamicSharedMemory());  // [kWarps][experts]
  const int experts = chosen.shape.experts, thread = static_cast<int>(threadIdx.x), warp = thread / 32,
            lane = thread % 32, block = static_cast<int>(blockIdx.y);
  int32_t* const own = counts + warp * experts;
  const int64_t block_end = min((blockIdx.x + int64_t{1}) * chosen.PairsOfThreadBlock(), chosen.Pairs());
  const int64_t of_warp = (chosen.PairsOfThreadBlock() + kGateThreads - 1) / kGateThreads * 32;
  const int64_t first = blockIdx.x * chosen.PairsOfThreadBlock() + warp * of_warp,
                end = min(first + of_warp, block_end);
  // Calls visit(pair, expert) for each of the warp's in turn; -1 behind the last.
  const auto for_pairs = [&](auto visit) {
    for (int64_t start = first; start < end; start += kAtOnce * 32) {
      int64_t pair[kAtOnce];
      int expert[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int64_t turn = start + i * 32 + lane;
        pair[i] = turn < end ? chosen.PairInTurn(block, turn) : -1;
        expert[i] = turn < end ? chosen.routing.expert[pair[i]] : -1;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) visit(pair[i], expert[i]);
    }
  };

  for (int i = thread; i < kWarps * experts; i += kGateThreads) counts[i] = 0;
  __syncthreads();
  for_pairs([&](int64_t, int expert) {
    if (expert >= 0) atomicAdd(&own[expert], 1);
  });
  __syncthreads();
  for (int expert = thread; expert < experts; expert += kGateThreads) {
    int32_t before = chosen.scratch.block_counts[chosen.CountAt(block, expert, static_cast<int>(blockIdx.x))];
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      const int32_t pairs = counts[i * experts + expert];
      counts[i * experts + expert] = before;
      before += pairs;
    }
  }
  __syncthreads();
  for_pairs([&](int64_t pair, int expert) {
    const unsigned same = __match_any_sync(0xffffffff, expert), before = same & ((1U << lane) - 1);
    const int32_t slot = expert < 0 ? 0 : own[expert] + __popc(before);
    __syncwarp();
    if (expert >= 0 && before == 0) own[expert] += __popc(same);
    __syncwarp();
    if (expert < 0) return;
    const int room = chosen.carried.RoomFor(block * experts + expert, chosen.capacity);
    chosen.routing.slot[pair] = slot < room ? slot : -1;
  });
}

__device__ int32_t KeptPairs(const AssignSlotsArgs& args, int experts, int expert) {
  int64_t before = 0;
  for (int slice = 0; slice < args.own_slice; ++slice) before += args.all_counts[slice * experts + expert];
  const int64_t left = args.carried.RoomFor(expert, args.capacity) - before,
                own = args.all_counts[args.own_slice * experts + expert];
  return static_cast<int32_t>(left < 0 ? 0 : min(left, own));
}

__global__ void AssignKernel(GateShape shape, const __grid_constant__ AssignSlotsArgs args) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (int64_t i = thread; i < shape.experts; i += stride) {
    const int expert = static_cast<int>(i), kept = KeptPairs(args, shape.experts, expert);
    args.sums.kept[expert] = kept;
    if (args.carried.now != nullptr) {
      int32_t now = args.carried.earlier[expert];
      for (int slice = 0; slice < args.slices; ++slice) now += args.all_counts[slice * shape.experts + expert];
      args.carried.now[expert] = now;
    }
    const int rank = expert / args.experts_per_rank, within = expert % args.experts_per_rank;
    for (int chunk = 0; chunk < args.units.chunks; ++chunk) {
      args.send_counts[(rank * args.units.chunks + chunk) * args.experts_per_rank + within] =
          SlotsOfChunk(kept, args.units, chunk);
    }
  }
  for (int64_t pair = thread; pair < static_cast<int64_t>(args.tokens.valid_rows) * shape.choices; pair += stride) {
    if (args.routing.slot[pair] >= KeptPairs(args, shape.experts, args.routing.expert[pair]))
      args.routing.slot[pair] = -1;
  }
}

constexpr size_t kAlignment = 16;
size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

GateLaunch LaunchOf(const GateShape& shape, int tokens) {
  GateLaunch launch;
  ForScores(shape.experts, [&](auto lanes, auto) { launch = LaunchOfGate(tokens, decltype(lanes)::value); });
  return launch;
}
// EXPERT_CHOICE chooses nothing.
size_t ChooseBytes(const GateShape& shape) {
  size_t bytes = 0;
  ForScores(shape.experts, [&](auto lanes, auto) {
    bytes = ChooseMemory::Bytes(shape.experts, shape.chooses_largest() ? shape.choices : 0, decltype(lanes)::value);
  });
  return bytes;
}
size_t LogitBytes(const GateShape& shape, const TokenRows& tokens) {
  return Aligned(sizeof(float) * tokens.blocks * tokens.rows_per_block * shape.experts);
}
size_t SumBytes(const GateShape& shape, const TokenRows& tokens) {
  return Aligned(sizeof(float) * (shape.experts + ChooseMemory::kSumsOfAll) *
                 LaunchOf(shape, tokens.valid_rows).blocks);
}

size_t CountBytes(const GateShape& shape, const TokenRows& tokens) {
  return Aligned(sizeof(int32_t) * tokens.blocks * shape.experts * LaunchOf(shape, tokens.valid_rows).blocks);
}
int ListsOf(const GateShape& shape, const TokenRows& tokens) {
  if (shape.gate == GateKind::kExpertChoice) return tokens.blocks * shape.experts;
  return shape.gate == GateKind::kBatchPrioritized ? tokens.blocks : 0;
}
size_t ItemBytes(const GateShape& shape, const TokenRows& tokens) {
  return Aligned(sizeof(int32_t) * ListsOf(shape, tokens) * tokens.rows_per_block);
}

// What comes between the tokens' scores and the sums over thread blocks, where pairs do not come in the order of
// tokens.
void StartOrders(const Chosen& chosen, cudaStream_t stream) {
  const TokenRows& tokens = chosen.tokens;
  const OrderedLists lists = {.keys = chosen.scratch.keys,
                              .lists = ListsOf(chosen.shape, tokens),
                              .items = tokens.valid_rows,
                              .stride = tokens.rows_per_block};
  if (chosen.shape.gate == GateKind::kExpertChoice) {
    const int experts = chosen.shape.experts;
    const Places slots = {.data = chosen.routing.slot,
                          .lists_of_block = experts,
                          .block_stride = static_cast<int64_t>(tokens.rows_per_block) * experts,
                          .item_stride = experts};
    return StartTaken(lists, std::min(chosen.capacity, tokens.valid_rows), slots,
                      {chosen.scratch.items, chosen.scratch.item_counts}, stream);
  }
  if (chosen.shape.gate == GateKind::kBatchPrioritized) StartOrder(lists, chosen.scratch.items, stream);
  if (chosen.shape.counts_in_order()) return;
  Start(CountKernel, {dim3(chosen.launch.blocks, tokens.blocks), kGateThreads, sizeof(int32_t) * chosen.shape.experts},
        stream, chosen);
}

// Whether choices or weights of logits are not those by default.
bool HasRules(const Router& router) {
  return router.score_function != ScoreFunction::kSoftmax || router.raw_weights || router.weight_scale != 1 ||
         LimitsGroups(router);
}

void StartChoices(const Chosen& chosen, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(chosen.tokens.blocks);
  if (chosen.shape.draws()) {
    const RowLaunch tokens = LaunchOfRows(chosen.tokens.valid_rows, 1);
    Start(DrawKernel, {dim3(tokens.blocks, blocks), kThreads}, stream, chosen);
  }
  ForScores(chosen.shape.experts, [&](auto lanes, auto scores) {
    constexpr int kLanes = decltype(lanes)::value, kScores = decltype(scores)::value;
    Start(HasRules(chosen.shape.router) ? ChooseKernel<kLanes, kScores, true> : ChooseKernel<kLanes, kScores, false>,
          {dim3(chosen.launch.blocks, blocks), kGateThreads, ChooseBytes(chosen.shape)}, stream, chosen);
  });
}

}  // namespace

Status CheckGate(const GateShape& shape) {
  if (shape.experts <= kMostScores && ChooseBytes(shape) <= kSharedBytes) return OkStatus();
  return InvalidInput(
      StrCat("layer.experts: found ", shape.experts, ", more than the scores of one token have room for"));
}

size_t GateScratch::Bytes(const GateShape& shape, const TokenRows& tokens) {
  return LogitBytes(shape, tokens) + SumBytes(shape, tokens) + CountBytes(shape, tokens) +
         2 * ItemBytes(shape, tokens) + sizeof(int32_t) * ListsOf(shape, tokens);
}

GateScratch GateScratch::At(std::byte* data, const GateShape& shape, const TokenRows& tokens) {
  std::byte* const sums = data + LogitBytes(shape, tokens);
  std::byte* const counts = sums + SumBytes(shape, tokens);
  std::byte* const keys = counts + CountBytes(shape, tokens);
  std::byte* const items = keys + ItemBytes(shape, tokens);
  return {.logits = reinterpret_cast<float*>(data),
          .block_sums = reinterpret_cast<float*>(sums),
          .block_counts = reinterpret_cast<int32_t*>(counts),
          .keys = reinterpret_cast<uint32_t*>(keys),
          .items = reinterpret_cast<int32_t*>(items),
          .item_counts = reinterpret_cast<int32_t*>(items + ItemBytes(shape, tokens))};
}

Status Gate(const GateShape& shape, const DeviceGate& gate, const GateArgs& args, const GateScratch& scratch,
            cudaStream_t stream) {
  RETURN_IF_ERROR(GateLogits(shape, gate, args.tokens, scratch, stream));
  return Route(shape, gate.correction_bias, args, scratch, stream);
}

Status GateLogits(const GateShape& shape, const DeviceGate& gate, const TokenRows& tokens, const GateScratch& scratch,
                  cudaStream_t stream) {
  StartLogits(shape.rows.type, tokens.data, gate.weight, gate.bias, scratch.logits,
              tokens.blocks * tokens.rows_per_block, shape.experts, shape.rows.columns, stream);
  return LaunchStatus("the logits of the gate");
}

Status Route(const GateShape& shape, const float* correction_bias, const GateArgs& args, const GateScratch& scratch,
             cudaStream_t stream) {
  const TokenRows& tokens = args.tokens;
  const Chosen chosen = {.shape = shape,
                         .tokens = tokens,
                         .routing = args.routing,
                         .scratch = scratch,
                         .correction_bias = correction_bias,
                         .capacity = args.capacity,
                         .own_block = args.own_block,
                         .carried = args.carried,
                         .limits_groups = LimitsGroups(shape.router),
                         .launch = LaunchOf(shape, tokens.valid_rows)};
  if (chosen.launch.blocks > 0) {
    StartChoices(chosen, stream);
    StartOrders(chosen, stream);
  }
  const auto blocks = static_cast<unsigned>(tokens.blocks);
  Start(SumUpKernel, {dim3(shape.experts + ChooseMemory::kSumsOfAll, blocks), kThreads}, stream, chosen, args.counts,
        args.sums);
  if (chosen.launch.blocks > 0 && shape.gate != GateKind::kExpertChoice) {
    constexpr size_t kCountBytes = sizeof(int32_t) * kGateThreads / 32;  // For an expert.
    Start(SlotsKernel, {dim3(chosen.launch.blocks, blocks), kGateThreads, kCountBytes * shape.experts}, stream, chosen);
  }
  return LaunchStatus("the gate");
}

Status AssignSlots(const GateShape& shape, const AssignSlotsArgs& args, cudaStream_t stream) {
  const int64_t pairs = static_cast<int64_t>(args.tokens.valid_rows) * shape.choices;
  const RowLaunch launch = LaunchOfRows(std::max<int64_t>(pairs, shape.experts), 1);
  Start(AssignKernel, {dim3(launch.blocks), kThreads}, stream, shape, args);
  return LaunchStatus("the slots of a slice");
}

}  // namespace moeplan::executor::cuda
