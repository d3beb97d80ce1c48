#include "executor/cuda/gate_logits.h"

#include "executor/cuda/access.cuh"
#include "executor/cuda/launch.h"
#include "executor/cuda/start.cuh"
#include "executor/gate_scores.h"

namespace moeplan::executor::cuda {
namespace {

// A thread has one lane of the running sums of 8 tokens and kExperts experts; a block 8 lanes of 4 · 8 tokens and
// 8 · kExperts experts.
constexpr int kLogitTokens = 8, kTokenGroups = 4, kExpertGroups = 8;
constexpr int kTileTokens = kLogitTokens * kTokenGroups;
constexpr int kTileColumns = 32, kTileStride = kTileColumns + kLogitLanes;
constexpr int kQuad = 4;  // Columns that a thread copies at a time.

// A tile of kRows rows of a matrix on its way to shared memory, in registers until it is wanted there.
template <typename Element, int kRows>
class TileOnItsWay {
 public:
  // Rows from `rows` on and columns from `end` on, which is a multiple of kQuad, are zeros.
  __device__ void Load(const Element* matrix, int columns, bool is_aligned, int first_row, int rows, int first_column,
                       int end) {
#pragma unroll
    for (int n = 0; n < kQuads; ++n) {
      const int row = first_row + Row(n), column = first_column + Column();
      const auto* const from = matrix + static_cast<int64_t>(row) * columns + column;
      quads_[n] = {};
      if (Row(n) >= kRows || row >= rows || column >= end) continue;
      if (is_aligned) {
        quads_[n] = *reinterpret_cast<const Access<Element, kQuad>*>(from);
      } else {
#pragma unroll
        for (int i = 0; i < kQuad; ++i) quads_[n].elements[i] = from[i];
      }
    }
  }
  __device__ void Store(float (*tile)[kTileStride]) const {
#pragma unroll
    for (int n = 0; n < kQuads; ++n) {
      if (Row(n) >= kRows) continue;
      float values[kQuad];
#pragma unroll
      for (int i = 0; i < kQuad; ++i) values[i] = ValueOf(quads_[n].elements[i]);
      StoreShared(values, &tile[Row(n)][Column()]);
    }
  }

 private:
  static constexpr int kQuadsOfRow = kTileColumns / kQuad, kRowsAtOnce = kThreads / kQuadsOfRow;
  static constexpr int kQuads = (kRows + kRowsAtOnce - 1) / kRowsAtOnce;
  __device__ static int Row(int n) { return n * kRowsAtOnce + static_cast<int>(threadIdx.x) / kQuadsOfRow; }
  __device__ static int Column() { return static_cast<int>(threadIdx.x) % kQuadsOfRow * kQuad; }

  Access<Element, kQuad> quads_[kQuads];
};

// While a tile is multiplied, the next one is on its way from memory. With `is_aligned`, rows begin at multiples of
// kQuad elements.
template <typename Element, int kExperts>
__global__ void __launch_bounds__(kThreads, 2)
    LogitsKernel(const Element* tokens, const float* gate_weight, const float* bias, float* logits, int rows,
                 int experts, int columns, bool is_aligned) {
  constexpr int kTileExperts = kExperts * kExpertGroups;
  alignas(16) __shared__ float token_tiles[2][kTileTokens][kTileStride];
  alignas(16) __shared__ float weight_tiles[2][kTileExperts][kTileStride];
  const int lane = static_cast<int>(threadIdx.x) % kLogitLanes;
  const int expert_group = static_cast<int>(threadIdx.x) / kLogitLanes % kExpertGroups;
  const int token_group = static_cast<int>(threadIdx.x) / (kLogitLanes * kExpertGroups);
  const int first_row = static_cast<int>(blockIdx.x) * kTileTokens,
            first_expert = static_cast<int>(blockIdx.y) * kTileExperts;
  const int laned = columns / kLogitLanes * kLogitLanes;

  TileOnItsWay<Element, kTileTokens> next_tokens;
  TileOnItsWay<float, kTileExperts> next_weights;
  const auto load = [&](int start) {
    next_tokens.Load(tokens, columns, is_aligned, first_row, rows, start, laned);
    next_weights.Load(gate_weight, columns, is_aligned, first_expert, experts, start, laned);
  };
  const auto store = [&](int tile) {
    next_tokens.Store(token_tiles[tile]);
    next_weights.Store(weight_tiles[tile]);
  };
  load(0);
  store(0);
  __syncthreads();
  float sums[kLogitTokens][kExperts] = {};
  for (int start = 0, tile = 0; start < laned; start += kTileColumns, tile ^= 1) {
    const bool has_next = start + kTileColumns < laned;
    if (has_next) load(start + kTileColumns);
    const auto& token_tile = token_tiles[tile];
    const auto& weight_tile = weight_tiles[tile];
    // Zeros behind the last column add nothing: a running sum is never -0.
#pragma unroll
    for (int column = 0; column < kTileColumns; column += kLogitLanes) {
      float token[kLogitTokens], weight[kExperts];
#pragma unroll
      for (int i = 0; i < kLogitTokens; ++i) token[i] = token_tile[token_group + i * kTokenGroups][column + lane];
#pragma unroll
      for (int j = 0; j < kExperts; ++j) weight[j] = weight_tile[expert_group + j * kExpertGroups][column + lane];
#pragma unroll
      for (int i = 0; i < kLogitTokens; ++i) {
#pragma unroll
        for (int j = 0; j < kExperts; ++j) sums[i][j] = AddProduct(sums[i][j], token[i], weight[j]);
      }
    }
    if (has_next) store(tile ^ 1);
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < kLogitTokens; ++i) {
#pragma unroll
    for (int j = 0; j < kExperts; ++j) {
      float lanes[kLogitLanes];
#pragma unroll
      for (int other = 0; other < kLogitLanes; ++other)
        lanes[other] = __shfl_sync(0xffffffff, sums[i][j], other, kLogitLanes);
      const int row = first_row + token_group + i * kTokenGroups,
                expert = first_expert + expert_group + j * kExpertGroups;
      if (lane != 0 || row >= rows || expert >= experts) continue;
      const int64_t token = static_cast<int64_t>(row) * columns + laned,
                    weight = static_cast<int64_t>(expert) * columns + laned;
      float left_over[kLogitLanes];
      for (int column = 0; column < columns - laned; ++column) left_over[column] = ValueOf(tokens[token + column]);
      const float logit = LogitOfLanes(lanes, left_over, gate_weight + weight, columns - laned);
      logits[static_cast<int64_t>(row) * experts + expert] = bias == nullptr ? logit : logit + bias[expert];
    }
  }
}

}  // namespace

void StartLogits(ElementType type, const std::byte* tokens, const float* gate_weight, const float* bias, float* logits,
                 int rows, int experts, int columns, cudaStream_t stream) {
  const auto start = [&]<typename Element, int kExperts>(Element, Constant<kExperts>) {
    const TileLaunch launch = LaunchOfTiles(rows, experts, kTileTokens, kExperts * kExpertGroups);
    if (launch.blocks_x == 0) return;
    const auto is_multiple = [](const void* at, size_t bytes) { return reinterpret_cast<uintptr_t>(at) % bytes == 0; };
    const bool is_aligned = columns % kQuad == 0 && is_multiple(tokens, kQuad * sizeof(Element)) &&
                            is_multiple(gate_weight, kQuad * sizeof(float));
    Start(LogitsKernel<Element, kExperts>, {dim3(launch.blocks_x, launch.blocks_y), kThreads}, stream,
          reinterpret_cast<const Element*>(tokens), gate_weight, bias, logits, rows, experts, columns, is_aligned);
  };
  const auto start_of = [&](auto element) {
    if (experts <= kExpertGroups) return start(element, Constant<1>{});
    if (experts <= 2 * kExpertGroups) return start(element, Constant<2>{});
    experts <= 4 * kExpertGroups ? start(element, Constant<4>{}) : start(element, Constant<8>{});
  };
  type == ElementType::kFloat32 ? start_of(float{}) : start_of(Bfloat16{});
}

}  // namespace moeplan::executor::cuda
