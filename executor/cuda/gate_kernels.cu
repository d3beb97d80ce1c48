#include "executor/cuda/gate_kernels.h"

#include <algorithm>

#include "executor/cuda/access.cuh"
#include "executor/cuda/errors.h"
#include "executor/cuda/gate_logits.h"
#include "executor/cuda/gate_order.h"
#include "executor/cuda/launch.h"
#include "executor/cuda/scan.cuh"
#include "executor/cuda/start.cuh"
#include "executor/gate_draws.h"

namespace moeplan::executor::cuda {
namespace {

// What a thread block of ChooseKernel is about.
struct Chosen {
  GateShape shape;
  TokenRows tokens;
  Routing routing;
  GateScratch scratch;
  int capacity = 0, own_block = 0;
  CarriedCounts carried;
  GateLaunch launch;

  __device__ int64_t CountAt(int block, int expert, int thread_block) const {
    return (static_cast<int64_t>(block) * shape.experts + expert) * launch.blocks + thread_block;
  }
  // The pair of the block whose turn comes after that of `turn` others. Of all gates whose tokens choose.
  __device__ int64_t PairInTurn(int block, int64_t turn) const {
    const int64_t first_row = static_cast<int64_t>(block) * tokens.rows_per_block;
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

// What a token chooses, a thread for a token; with EXPERT_CHOICE nothing. `scores` are its logits and become its
// probabilities.
__device__ GateScore ChooseExperts(const Chosen& chosen, float* scores, int64_t row, int index) {
  const int experts = chosen.shape.experts, choices = chosen.shape.choices;
  int32_t* const expert = chosen.routing.expert + row * choices;
  float* const weight = chosen.routing.weight + row * choices;
  if (chosen.shape.chooses_largest()) ChooseLargestLogits(scores, experts, choices, expert);
  const GateScore score = SoftmaxOf(scores, experts, scores);
  if (chosen.shape.chooses_largest()) WeighChosen(scores, expert, choices, weight);
  if (chosen.shape.draws()) {
    DrawExperts(DrawKey(chosen, row, index), experts, choices, expert);
    for (int choice = 0; choice < choices; ++choice) weight[choice] = 1.0F / static_cast<float>(choices);
  }
  return score;
}

// With EXPERT_CHOICE: every expert may take every token of this thread block.
__device__ void OfferTokens(const Chosen& chosen, const float* scores, int block, int first, int tokens) {
  const int experts = chosen.shape.experts, stride = ScoreStride(experts);
  const int64_t first_row = static_cast<int64_t>(block) * chosen.tokens.rows_per_block + first;
  for (int i = static_cast<int>(threadIdx.x); i < tokens * experts; i += kGateThreads) {
    const int token = i / experts, expert = i % experts;
    const float probability = scores[token * stride + expert];
    const int64_t pair = (first_row + token) * experts + expert;
    chosen.routing.expert[pair] = expert;
    chosen.routing.slot[pair] = -1;
    chosen.routing.weight[pair] = probability;
    const int64_t list = static_cast<int64_t>(block) * experts + expert;
    chosen.scratch.keys[list * chosen.tokens.rows_per_block + first + token] = OrderOf(probability);
  }
}

// To each of `pairs` pairs its place among those of its expert; pair_at(i) is the i-th one. `counts` is
// [kGateCounts][experts] and zero; its first row becomes the pairs of each expert.
template <typename PairAt>
__device__ void RankPairs(const Chosen& chosen, int pairs, int32_t* counts, PairAt pair_at) {
  const int experts = chosen.shape.experts, thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  int32_t* const of_warps = counts + experts;
  for (int start = 0; start < pairs; start += kGateThreads) {
    const bool is_pair = start + thread < pairs;
    const int64_t pair = is_pair ? pair_at(start + thread) : 0;
    const int expert = is_pair ? chosen.routing.expert[pair] : -1;
    const unsigned same = __match_any_sync(0xffffffff, expert), before = same & ((1U << (thread % 32)) - 1);
    if (is_pair && before == 0) of_warps[warp * experts + expert] = __popc(same);
    __syncthreads();
    if (is_pair) {
      int32_t rank = counts[expert] + __popc(before);
      for (int i = 0; i < warp; ++i) rank += of_warps[i * experts + expert];
      chosen.routing.slot[pair] = rank;
    }
    __syncthreads();
    for (int i = thread; i < experts; i += kGateThreads) {
      for (int other = 0; other < kGateThreads / 32; ++other) {
        counts[i] += of_warps[other * experts + i];
        of_warps[other * experts + i] = 0;
      }
    }
    __syncthreads();
  }
}

// The sums of the own block's statistics over the tokens of this thread block.
__device__ void WriteBlockSums(const Chosen& chosen, const float* scores, int tokens, const GateScore& score,
                               bool is_token) {
  __shared__ double of_warps[2][kGateThreads / 32];
  static_assert(sizeof of_warps <= kGateFixedBytes);
  const int thread = static_cast<int>(threadIdx.x), blocks = chosen.launch.blocks,
            stride = ScoreStride(chosen.shape.experts);
  const double squared = SumOfWarp(is_token ? score.log_sum_exp * score.log_sum_exp : 0.0);
  const double entropy = SumOfWarp(is_token ? score.entropy : 0.0);
  if (thread % 32 == 0) {
    of_warps[0][thread / 32] = squared;
    of_warps[1][thread / 32] = entropy;
  }
  __syncthreads();
  if (thread < 2) {
    double sum = 0;
    for (const double part : of_warps[thread]) sum += part;
    chosen.scratch.block_sums[(chosen.shape.experts + thread) * static_cast<int64_t>(blocks) + blockIdx.x] = sum;
  }
  for (int expert = thread; expert < chosen.shape.experts; expert += kGateThreads) {
    double sum = 0;
    for (int token = 0; token < tokens; ++token) sum += scores[token * stride + expert];
    chosen.scratch.block_sums[static_cast<int64_t>(expert) * blocks + blockIdx.x] = sum;
  }
}

__device__ void WriteBlockCounts(const Chosen& chosen, int block, const int32_t* counts) {
  for (int i = static_cast<int>(threadIdx.x); i < chosen.shape.experts; i += kGateThreads) {
    chosen.scratch.block_counts[chosen.CountAt(block, i, static_cast<int>(blockIdx.x))] = counts[i];
  }
}

__global__ void __launch_bounds__(kGateThreads) ChooseKernel(const __grid_constant__ Chosen chosen) {
  auto* const shared = reinterpret_cast<int32_t*>(DynamicSharedMemory());
  const int experts = chosen.shape.experts, stride = ScoreStride(experts), thread = static_cast<int>(threadIdx.x);
  int32_t* const counts = shared;
  auto* const scores = reinterpret_cast<float*>(shared + kGateCounts * experts);
  const int block = static_cast<int>(blockIdx.y), first = static_cast<int>(blockIdx.x) * chosen.launch.tokens_per_block;
  const int tokens = min(chosen.launch.tokens_per_block, chosen.tokens.valid_rows - first);
  const int64_t first_row = static_cast<int64_t>(block) * chosen.tokens.rows_per_block + first;

  for (int i = thread; i < kGateCounts * experts; i += kGateThreads) counts[i] = 0;
  const float* const logits = chosen.scratch.logits + first_row * experts;
  for (int i = thread; i < tokens * experts; i += kGateThreads) scores[i / experts * stride + i % experts] = logits[i];
  __syncthreads();
  GateScore score;
  if (thread < tokens) score = ChooseExperts(chosen, scores + thread * stride, first_row + thread, first + thread);
  __syncthreads();
  if (chosen.shape.gate == GateKind::kExpertChoice) {
    OfferTokens(chosen, scores, block, first, tokens);
  } else if (chosen.shape.gate == GateKind::kBatchPrioritized) {
    if (thread < tokens) chosen.scratch.keys[first_row + thread] = OrderOf(score.largest_probability);
  } else {
    const int64_t first_pair = first_row * chosen.shape.choices;
    RankPairs(chosen, tokens * chosen.shape.choices, counts, [&](int i) { return first_pair + i; });
    WriteBlockCounts(chosen, block, counts);
  }
  if (block == chosen.own_block) WriteBlockSums(chosen, scores, tokens, score, thread < tokens);
}

// With BATCH_PRIORITIZED, behind the order of tokens: a thread block has as many pairs as it has where tokens come one
// after the other.
__global__ void __launch_bounds__(kGateThreads) RankPrioritizedKernel(const __grid_constant__ Chosen chosen) {
  auto* const counts = reinterpret_cast<int32_t*>(DynamicSharedMemory());
  const int block = static_cast<int>(blockIdx.y), of_a_block = chosen.launch.tokens_per_block * chosen.shape.choices;
  const int first = static_cast<int>(blockIdx.x) * of_a_block;
  for (int i = static_cast<int>(threadIdx.x); i < kGateCounts * chosen.shape.experts; i += kGateThreads) counts[i] = 0;
  __syncthreads();
  const int pairs = min(of_a_block, chosen.tokens.valid_rows * chosen.shape.choices - first);
  RankPairs(chosen, pairs, counts, [&](int i) { return chosen.PairInTurn(block, first + i); });
  WriteBlockCounts(chosen, block, counts);
}

// A block for each expert of each source batch: counts of thread blocks become how many pairs came before them. Those
// behind the last expert are for the sums that are not of an expert.
__global__ void SumUpKernel(const __grid_constant__ Chosen chosen, int32_t* counts, RouterSums sums) {
  __shared__ int32_t integers[kThreads];
  __shared__ double numbers[kThreads];
  const int row = static_cast<int>(blockIdx.x), block = static_cast<int>(blockIdx.y), blocks = chosen.launch.blocks;
  const bool is_own = block == chosen.own_block;
  const bool experts_choose = chosen.shape.gate == GateKind::kExpertChoice;
  int32_t before = experts_choose ? min(chosen.capacity, chosen.tokens.valid_rows) : 0;
  if (row < chosen.shape.experts && !experts_choose) {
    int32_t* const own = chosen.scratch.block_counts + chosen.CountAt(block, row, 0);
    for (int start = 0; start < blocks; start += kThreads) {
      const int i = start + static_cast<int>(threadIdx.x);
      const int32_t pairs = i < blocks ? own[i] : 0;
      const int32_t up_to_here = SumUpToHere(pairs, integers);
      if (i < blocks) own[i] = before + up_to_here - pairs;
      before += integers[kThreads - 1];
      __syncthreads();
    }
  }
  if (row < chosen.shape.experts && threadIdx.x == 0 && chosen.carried.now != nullptr) {
    const int i = block * chosen.shape.experts + row;
    chosen.carried.now[i] = chosen.carried.earlier[i] + before;
  }
  if (!is_own) return;
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += kThreads) {
    sum += chosen.scratch.block_sums[static_cast<int64_t>(row) * blocks + i];
  }
  SumUpToHere(sum, numbers);
  if (threadIdx.x != 0) return;
  const double all = numbers[kThreads - 1];
  if (row == chosen.shape.experts) *sums.squared_log_sum_exp = all;
  if (row == chosen.shape.experts + 1) *sums.entropy = all;
  if (row >= chosen.shape.experts) return;
  if (row == 0) *sums.tokens = chosen.tokens.valid_rows;
  if (counts != nullptr) counts[row] = before;
  sums.pairs[row] = before;
  sums.kept[row] = min(before, chosen.carried.RoomFor(block * chosen.shape.experts + row, chosen.capacity));
  sums.probability[row] = all;
}

__global__ void TakeSlotsKernel(const __grid_constant__ Chosen chosen) {
  const int choices = chosen.shape.choices, block = static_cast<int>(blockIdx.y);
  const int64_t pairs = static_cast<int64_t>(chosen.tokens.valid_rows) * choices;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < pairs; i += stride) {
    const int thread_block = static_cast<int>(i / choices) / chosen.launch.tokens_per_block;
    const int64_t pair = chosen.PairInTurn(block, i);
    const int expert = chosen.routing.expert[pair];
    const int32_t slot =
        chosen.routing.slot[pair] + chosen.scratch.block_counts[chosen.CountAt(block, expert, thread_block)];
    const int room = chosen.carried.RoomFor(block * chosen.shape.experts + expert, chosen.capacity);
    chosen.routing.slot[pair] = slot < room ? slot : -1;
  }
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
  return LaunchOfGate(tokens, shape.experts, /*rows_of_scores=*/1, kGateCounts);
}
size_t LogitBytes(const GateShape& shape, const TokenRows& tokens) {
  return Aligned(sizeof(float) * tokens.blocks * tokens.rows_per_block * shape.experts);
}
size_t SumBytes(const GateShape& shape, const TokenRows& tokens) {
  return Aligned(sizeof(double) * (shape.experts + 2) * LaunchOf(shape, tokens.valid_rows).blocks);
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
  if (chosen.shape.gate != GateKind::kBatchPrioritized) return;
  StartOrder(lists, chosen.scratch.items, stream);
  Start(RankPrioritizedKernel,
        {dim3(chosen.launch.blocks, tokens.blocks), kGateThreads, sizeof(int32_t) * kGateCounts * chosen.shape.experts},
        stream, chosen);
}

}  // namespace

Status CheckGate(const GateShape& shape) {
  if (LaunchOf(shape, 1).tokens_per_block > 0) return OkStatus();
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
          .block_sums = reinterpret_cast<double*>(sums),
          .block_counts = reinterpret_cast<int32_t*>(counts),
          .keys = reinterpret_cast<uint32_t*>(keys),
          .items = reinterpret_cast<int32_t*>(items),
          .item_counts = reinterpret_cast<int32_t*>(items + ItemBytes(shape, tokens))};
}

Status Gate(const GateShape& shape, const float* gate_weight, const GateArgs& args, const GateScratch& scratch,
            cudaStream_t stream) {
  RETURN_IF_ERROR(GateLogits(shape, gate_weight, args.tokens, scratch, stream));
  return Route(shape, args, scratch, stream);
}

Status GateLogits(const GateShape& shape, const float* gate_weight, const TokenRows& tokens, const GateScratch& scratch,
                  cudaStream_t stream) {
  StartLogits(shape.rows.type, tokens.data, gate_weight, scratch.logits, tokens.blocks * tokens.rows_per_block,
              shape.experts, shape.rows.columns, stream);
  return LaunchStatus("the logits of the gate");
}

Status Route(const GateShape& shape, const GateArgs& args, const GateScratch& scratch, cudaStream_t stream) {
  const TokenRows& tokens = args.tokens;
  const Chosen chosen = {.shape = shape,
                         .tokens = tokens,
                         .routing = args.routing,
                         .scratch = scratch,
                         .capacity = args.capacity,
                         .own_block = args.own_block,
                         .carried = args.carried,
                         .launch = LaunchOf(shape, tokens.valid_rows)};
  const auto blocks = static_cast<unsigned>(tokens.blocks);
  if (chosen.launch.blocks > 0) {
    Start(ChooseKernel, {dim3(chosen.launch.blocks, blocks), kGateThreads, chosen.launch.shared_bytes}, stream, chosen);
    StartOrders(chosen, stream);
  }
  Start(SumUpKernel, {dim3(shape.experts + 2, blocks), kThreads}, stream, chosen, args.counts, args.sums);
  const RowLaunch pairs = LaunchOfRows(static_cast<int64_t>(tokens.valid_rows) * shape.choices, 1);
  const bool tokens_choose = shape.gate != GateKind::kExpertChoice;
  if (pairs.blocks > 0 && tokens_choose) Start(TakeSlotsKernel, {dim3(pairs.blocks, blocks), kThreads}, stream, chosen);
  return LaunchStatus("the gate");
}

Status AssignSlots(const GateShape& shape, const AssignSlotsArgs& args, cudaStream_t stream) {
  const int64_t pairs = static_cast<int64_t>(args.tokens.valid_rows) * shape.choices;
  const RowLaunch launch = LaunchOfRows(std::max<int64_t>(pairs, shape.experts), 1);
  Start(AssignKernel, {dim3(launch.blocks), kThreads}, stream, shape, args);
  return LaunchStatus("the slots of a slice");
}

}  // namespace moeplan::executor::cuda
