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

template <typename Element, int kExperts>
__global__ void LogitsKernel(const Element* tokens, const float* gate_weight, float* logits, int rows, int experts,
                             int columns) {
  constexpr int kTileExperts = kExperts * kExpertGroups;
  __shared__ float token_tile[kTileTokens][kTileStride], weight_tile[kTileExperts][kTileStride];
  const int lane = static_cast<int>(threadIdx.x) % kLogitLanes;
  const int expert_group = static_cast<int>(threadIdx.x) / kLogitLanes % kExpertGroups;
  const int token_group = static_cast<int>(threadIdx.x) / (kLogitLanes * kExpertGroups);
  const int first_row = static_cast<int>(blockIdx.x) * kTileTokens,
            first_expert = static_cast<int>(blockIdx.y) * kTileExperts;
  const int laned = columns / kLogitLanes * kLogitLanes;

  float sums[kLogitTokens][kExperts] = {};
  for (int start = 0; start < laned; start += kTileColumns) {
    for (int i = static_cast<int>(threadIdx.x); i < kTileTokens * kTileColumns; i += kThreads) {
      const int row = first_row + i / kTileColumns, column = start + i % kTileColumns;
      token_tile[i / kTileColumns][i % kTileColumns] =
          row < rows && column < laned ? ValueOf(tokens[static_cast<int64_t>(row) * columns + column]) : 0;
    }
    for (int i = static_cast<int>(threadIdx.x); i < kTileExperts * kTileColumns; i += kThreads) {
      const int expert = first_expert + i / kTileColumns, column = start + i % kTileColumns;
      weight_tile[i / kTileColumns][i % kTileColumns] =
          expert < experts && column < laned ? gate_weight[static_cast<int64_t>(expert) * columns + column] : 0;
    }
    __syncthreads();
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
      logits[static_cast<int64_t>(row) * experts + expert] =
          LogitOfLanes(lanes, left_over, gate_weight + weight, columns - laned);
    }
  }
}

}  // namespace

void StartLogits(ElementType type, const std::byte* tokens, const float* gate_weight, float* logits, int rows,
                 int experts, int columns, cudaStream_t stream) {
  const auto start = [&]<typename Element, int kExperts>(Element, Constant<kExperts>) {
    const TileLaunch launch = LaunchOfTiles(rows, experts, kTileTokens, kExperts * kExpertGroups);
    if (launch.blocks_x == 0) return;
    Start(LogitsKernel<Element, kExperts>, {dim3(launch.blocks_x, launch.blocks_y), kThreads}, stream,
          reinterpret_cast<const Element*>(tokens), gate_weight, logits, rows, experts, columns);
  };
  const auto start_of = [&](auto element) {
    if (experts <= kExpertGroups) return start(element, Constant<1>{});
    if (experts <= 2 * kExpertGroups) return start(element, Constant<2>{});
    experts <= 4 * kExpertGroups ? start(element, Constant<4>{}) : start(element, Constant<8>{});
  };
  type == ElementType::kFloat32 ? start_of(float{}) : start_of(Bfloat16{});
}

}  // namespace moeplan::executor::cuda
