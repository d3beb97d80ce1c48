#include <algorithm>

#include "executor/cuda/access.cuh"
#include "executor/cuda/errors.h"
#include "executor/cuda/gate_kernels.h"
#include "executor/cuda/gate_logits.h"
#include "executor/cuda/launch.h"
#include "executor/cuda/start.cuh"
#include "executor/cuda/token_scores.cuh"

namespace moeplan::executor::cuda {
namespace {

// Rows of the gradient of the gate's weights are summed up in at most so many parts, of at least so many tokens.
constexpr int kMostParts = 16, kTokensOfPart = 512;
// Results of a thread block, of which a thread has 4 · 4, and how much of the inner dimension is in shared memory.
constexpr int kTile = 64, kInner = 16, kThreadsOfTile = 16, kOfThread = kTile / kThreadsOfTile;

int TokensOfPart(int tokens) { return std::max(kTokensOfPart, (tokens + kMostParts - 1) / kMostParts); }
int PartsOf(int tokens) { return (tokens + TokensOfPart(tokens) - 1) / TokensOfPart(tokens); }

__global__ void SlopesKernel(const int32_t* pair_counts, int count, int experts, double aux_loss_of_a_token,
                             float* slopes) {
  double all = 0;
  for (int i = 0; i < count; ++i) all += pair_counts[i];
  for (int expert = static_cast<int>(threadIdx.x); expert < experts; expert += kThreads) {
    float slope = 0;
    for (int i = expert; i < count; i += experts) {
      slope += static_cast<float>(aux_loss_of_a_token * experts / all * pair_counts[i]);
    }
    slopes[expert] = slope;
  }
}

struct ScoreGradients {
  GateShape shape;
  WeightKind weights;
  ChoiceGradients chosen;  // Of all tokens.
  GateGradientScratch scratch;
  float log_sum_exp_slope = 0;
  int tokens = 0;
  GateLaunch launch;
};

// Logits to their gradients, in place, as LogitGradientsOf and AddLossGradients have them; kLanes lanes for a token.
template <int kLanes, int kScores>
__global__ void __launch_bounds__(kGateThreads) ScoresKernel(const __grid_constant__ ScoreGradients args) {
  using Scores = TokenScores<kLanes, kScores>;
  const int experts = args.shape.experts, choices = args.chosen.choices, thread = static_cast<int>(threadIdx.x),
            lane = thread % kLanes;
  const int first = static_cast<int>(blockIdx.x) * args.launch.tokens_per_block,
            end = min(first + args.launch.tokens_per_block, args.tokens);
  const auto slopes = Scores::Load(args.scratch.slopes, lane, experts, /*other=*/0);
  for (int start = first; start < end; start += kGateThreads / kLanes) {
    const int index = start + thread / kLanes;
    const int64_t token = index < end ? index : start;
    float* const row = args.scratch.logit_gradients + token * experts;
    Scores probabilities, gradients;
    const auto logits = Scores::Load(row, lane, experts, /*other=*/-INFINITY);
    const GateScore score = SharesOf(logits, logits.Highest(), probabilities);
    const float* const weights = args.chosen.weights + token * choices;
    const float* const weight_gradients = args.chosen.gradients + token * choices;
    float mean = 0;
    for (int choice = 0; choice < choices; ++choice) mean += weights[choice] * weight_gradients[choice];
#pragma unroll
    for (int n = 0; n < kScores; ++n) {
      probabilities.values[n] *= score.largest_probability;
      gradients.values[n] = args.weights == WeightKind::kAmongAll ? -probabilities.values[n] * mean : 0;
    }
    const float subtracted = args.weights == WeightKind::kAmongChosen ? mean : 0;
    for (int choice = 0; args.weights != WeightKind::kFixed && choice < choices; ++choice) {
      const int expert = args.chosen.experts[token * choices + choice];
      const float gradient = weights[choice] * (weight_gradients[choice] - subtracted);
#pragma unroll
      for (int n = 0; n < kScores; ++n) {
        gradients.values[n] += expert == Scores::ExpertAt(lane, n) ? gradient : 0;
      }
    }
    const float mean_loss = Scores::SumOf([&](int n) { return probabilities.values[n] * slopes.values[n]; });
    const float of_log_sum_exp = args.log_sum_exp_slope * score.log_sum_exp;
#pragma unroll
    for (int n = 0; n < kScores; ++n) {
      const int expert = Scores::ExpertAt(lane, n);
      const float loss = probabilities.values[n] * (slopes.values[n] - mean_loss + of_log_sum_exp);
      if (index < end && expert < experts) row[expert] = gradients.values[n] + loss;
    }
  }
}

// store(row, column, sum over inner of a(row, inner) · b(inner, column)) for the block's tile; a and b are 0 outside of
// their matrices, and store is called inside of it alone.
template <typename A, typename B, typename Store>
__device__ void MultiplyTile(int rows, int columns, int first_inner, int end_inner, A a, B b, Store store) {
  __shared__ float a_tile[kInner][kTile + 1], b_tile[kInner][kTile];
  const int first_row = static_cast<int>(blockIdx.x) * kTile, first_column = static_cast<int>(blockIdx.y) * kTile;
  const int thread = static_cast<int>(threadIdx.x), x = thread % kThreadsOfTile, y = thread / kThreadsOfTile;
  float sums[kOfThread][kOfThread] = {};
  for (int start = first_inner; start < end_inner; start += kInner) {
    for (int i = thread; i < kInner * kTile; i += kThreads) {
      const int inner = start + i / kTile, row = first_row + i % kTile, column = first_column + i % kTile;
      a_tile[i / kTile][i % kTile] = inner < end_inner && row < rows ? a(row, inner) : 0;
      b_tile[i / kTile][i % kTile] = inner < end_inner && column < columns ? b(inner, column) : 0;
    }
    __syncthreads();
#pragma unroll
    for (int inner = 0; inner < kInner; ++inner) {
#pragma unroll
      for (int i = 0; i < kOfThread; ++i) {
#pragma unroll
        for (int j = 0; j < kOfThread; ++j) {
          sums[i][j] += a_tile[inner][y + i * kThreadsOfTile] * b_tile[inner][x + j * kThreadsOfTile];
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kOfThread; ++i) {
#pragma unroll
    for (int j = 0; j < kOfThread; ++j) {
      const int row = first_row + y + i * kThreadsOfTile, column = first_column + x + j * kThreadsOfTile;
      if (row < rows && column < columns) store(row, column, sums[i][j]);
    }
  }
}

template <typename Element>
__global__ void InputGradientKernel(GateShape shape, const __grid_constant__ GateGradientArgs args,
                                    const float* logit_gradients, const float* gate_weight) {
  const int columns = shape.rows.columns;
  MultiplyTile(
      args.tokens.valid_rows, columns, 0, shape.experts,
      [&](int row, int expert) { return logit_gradients[static_cast<int64_t>(row) * shape.experts + expert]; },
      [&](int expert, int column) { return gate_weight[static_cast<int64_t>(expert) * columns + column]; },
      [&](int row, int column, float sum) {
        const int64_t at = static_cast<int64_t>(row) * columns + column;
        float gradient = ValueOf(reinterpret_cast<const Element*>(args.tokens_gradient)[at]);
        if (args.shared_gradient != nullptr) {
          gradient += ValueOf(reinterpret_cast<const Element*>(args.shared_gradient)[at]);
        }
        reinterpret_cast<Element*>(args.in_gradient)[at] = ElementOf<Element>(gradient + sum);
      });
}

template <typename Element>
__global__ void WeightGradientKernel(GateShape shape, TokenRows tokens, GateGradientScratch scratch,
                                     int tokens_of_part) {
  const int columns = shape.rows.columns, first = static_cast<int>(blockIdx.z) * tokens_of_part;
  float* const part = scratch.parts + static_cast<int64_t>(blockIdx.z) * shape.experts * columns;
  MultiplyTile(
      shape.experts, columns, first, min(tokens.valid_rows, first + tokens_of_part),
      [&](int expert, int row) { return scratch.logit_gradients[static_cast<int64_t>(row) * shape.experts + expert]; },
      [&](int row, int column) {
        return ValueOf(reinterpret_cast<const Element*>(tokens.data)[static_cast<int64_t>(row) * columns + column]);
      },
      [&](int expert, int column, float sum) { part[static_cast<int64_t>(expert) * columns + column] = sum; });
}

__global__ void SumPartsKernel(const float* parts, int count, int64_t values, float* sums) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < values; i += stride) {
    float sum = 0;
    for (int part = 0; part < count; ++part) sum += parts[part * values + i];
    sums[i] = sum;
  }
}

size_t LogitGradientBytes(const GateShape& shape, const TokenRows& tokens) {
  return sizeof(float) * tokens.valid_rows * shape.experts;
}

template <typename Element>
void StartProducts(const GateShape& shape, const float* gate_weight, const GateGradientArgs& args,
                   const GateGradientScratch& scratch, cudaStream_t stream) {
  const int tokens = args.tokens.valid_rows, columns = shape.rows.columns, parts = PartsOf(tokens);
  const TileLaunch in = LaunchOfTiles(tokens, columns, kTile, kTile);
  if (in.blocks_x > 0) {
    Start(InputGradientKernel<Element>, {dim3(in.blocks_x, in.blocks_y), kThreads}, stream, shape, args,
          scratch.logit_gradients, gate_weight);
    const TileLaunch weight = LaunchOfTiles(shape.experts, columns, kTile, kTile);
    Start(WeightGradientKernel<Element>, {dim3(weight.blocks_x, weight.blocks_y, parts), kThreads}, stream, shape,
          args.tokens, scratch, TokensOfPart(tokens));
  }
  const int64_t values = static_cast<int64_t>(shape.experts) * columns;
  Start(SumPartsKernel, {dim3(LaunchOfRows(values, 1).blocks), kThreads}, stream, scratch.parts, parts, values,
        args.gate_gradient);
}

}  // namespace

size_t GateGradientScratch::Bytes(const GateShape& shape, const TokenRows& tokens) {
  return LogitGradientBytes(shape, tokens) +
         sizeof(float) * shape.experts * (1 + static_cast<size_t>(PartsOf(tokens.valid_rows)) * shape.rows.columns);
}

GateGradientScratch GateGradientScratch::At(std::byte* data, const GateShape& shape, const TokenRows& tokens) {
  auto* const slopes = reinterpret_cast<float*>(data + LogitGradientBytes(shape, tokens));
  return {.logit_gradients = reinterpret_cast<float*>(data), .slopes = slopes, .parts = slopes + shape.experts};
}

Status GateGradient(const GateShape& shape, WeightKind weights, const RouterLosses& losses, const float* gate_weight,
                    const GateGradientArgs& args, const GateGradientScratch& scratch, cudaStream_t stream) {
  const int tokens = args.tokens.valid_rows;
  StartLogits(shape.rows.type, args.tokens.data, gate_weight, scratch.logit_gradients, tokens, shape.experts,
              shape.rows.columns, stream);
  Start(SlopesKernel, {dim3(1), kThreads}, stream, args.pair_counts.data(), static_cast<int>(args.pair_counts.size()),
        shape.experts, losses.aux_loss_coefficient / args.batch_tokens, scratch.slopes);
  ScoreGradients scores = {.shape = shape,
                           .weights = weights,
                           .chosen = {.experts = args.routing.expert,
                                      .weights = args.routing.weight,
                                      .gradients = args.routing_gradient,
                                      .choices = shape.choices},
                           .scratch = scratch,
                           .log_sum_exp_slope = static_cast<float>(2 * losses.z_loss_coefficient / args.batch_tokens),
                           .tokens = tokens};
  ForScores(shape.experts, [&](auto lanes, auto count) {
    scores.launch = LaunchOfGate(tokens, decltype(lanes)::value);
    if (scores.launch.blocks == 0) return;
    Start(ScoresKernel<decltype(lanes)::value, decltype(count)::value>, {dim3(scores.launch.blocks), kGateThreads},
          stream, scores);
  });
  shape.rows.type == ElementType::kFloat32 ? StartProducts<float>(shape, gate_weight, args, scratch, stream)
                                           : StartProducts<Bfloat16>(shape, gate_weight, args, scratch, stream);
  return LaunchStatus("the gradient of the gate");
}

}  // namespace moeplan::executor::cuda
