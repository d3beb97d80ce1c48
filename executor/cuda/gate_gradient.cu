#include <algorithm>
#include <vector>

#include "executor/cuda/access.cuh"
#include "executor/cuda/errors.h"
#include "executor/cuda/gate_kernels.h"
#include "executor/cuda/grouped_gemm.h"
#include "executor/cuda/launch.h"
#include "executor/cuda/start.cuh"
#include "executor/cuda/token_scores.cuh"

namespace moeplan::executor::cuda {
namespace {

// A float as three BF16 numbers, each with 8 of the 24 bits of its mantissa, whose sum it is. With BF16 rows the
// products take floats as such pieces, because cuBLASLt multiplies BF16 by BF16 more than eight times as fast as floats
// by floats.
//
// Logits and the gradient of the gate's weights are BF16 tokens times all three pieces: as exact as products of floats.
// The gradient of tokens, which becomes BF16 itself, is pieces times pieces: high · high + high · middle + middle ·
// high, which leaves out about 2^-16 of each product.
//
// A row or matrix keeps four pieces side by side, one of them twice, so that the three pieces of every product are
// neighbours: the first three are the three numbers, and the last three of a gradient and of a weight make the pairs
// above.
constexpr int kPieces = 3, kKeptPieces = 4;
struct Pieces {
  Bfloat16 low, middle, high;

  __device__ explicit Pieces(float value) : high(ElementOf<Bfloat16>(value)) {
    const float rest = value - ValueOf(high);
    middle = ElementOf<Bfloat16>(rest);
    low = ElementOf<Bfloat16>(rest - ValueOf(middle));
  }
  // Puts them `stride` elements apart.
  __device__ void StoreGradient(Bfloat16* to, int64_t stride) const { Store({low, high, middle, high}, to, stride); }
  __device__ void StoreWeight(Bfloat16* to, int64_t stride) const { Store({low, middle, high, high}, to, stride); }

 private:
  __device__ static void Store(const Access<Bfloat16, kKeptPieces>& kept, Bfloat16* to, int64_t stride) {
#pragma unroll
    for (int piece = 0; piece < kKeptPieces; ++piece) to[piece * stride] = kept.elements[piece];
  }
};

int PiecesOf(const GateShape& shape) { return shape.rows.type == ElementType::kFloat32 ? 1 : kPieces; }
// A row of logits becomes their gradients, in the same memory: as floats, or as fewer bytes of pieces.
int LogitsOfRow(const GateShape& shape) { return PiecesOf(shape) * shape.experts; }
int GradientStride(const GateShape& shape) {
  return LogitsOfRow(shape) * static_cast<int>(sizeof(float)) / shape.rows.element_bytes();
}

// The gradient of the gate's weights has few results, each a sum over all tokens. Tokens are cut into as many parts as
// give every multiprocessor a tile of kTile · kTile results; each part has sums of its own, which are then added in an
// order that depends on nothing but the shape.
constexpr int kTile = 128, kTilesOfCard = 128, kLeastTokensOfPart = 256;

int TokensOfPart(const GateShape& shape, int tokens) {
  const auto quotient = [](int dividend, int divisor) { return (dividend + divisor - 1) / divisor; };
  const int tiles = quotient(LogitsOfRow(shape), kTile) * quotient(shape.rows.columns, kTile);
  int parts = 1;
  while (tiles * parts < kTilesOfCard && tokens / (2 * parts) >= kLeastTokensOfPart) parts *= 2;
  constexpr int kAligned = kAccessBytes;  // So that parts begin at whole accesses.
  return std::max(1, quotient(quotient(tokens, parts), kAligned)) * kAligned;
}
int PartsOf(const GateShape& shape, int tokens) {
  const int of_part = TokensOfPart(shape, tokens);
  return (tokens + of_part - 1) / of_part;
}

// How many tokens' gradients are made at a time: so many that their float sums stay in the second-level cache.
int TokensAtOnce(const GateShape& shape, int tokens) {
  constexpr size_t kBytes = size_t{16} << 20;
  const size_t fitting = kBytes / (sizeof(float) * std::max(1, shape.rows.columns)) / kTile * kTile;
  return static_cast<int>(std::min(static_cast<size_t>(tokens), std::max(fitting, size_t{kTile})));
}

__global__ void WeightPiecesKernel(const float* gate_weight, int64_t values, Bfloat16* pieces) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < values; i += stride) {
    Pieces(gate_weight[i]).StoreWeight(pieces + i, values);
  }
}

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
  WeightRule weights;
  ChoiceGradients chosen;  // Of all tokens.
  const float* bias = nullptr;
  GateGradientScratch scratch;
  float log_sum_exp_slope = 0;
  int tokens = 0;
  GateLaunch launch;
};

// The scores of logits.
template <ScoreFunction kFunction, int kLanes, int kScores>
__device__ GateScore ScoresOf(const TokenScores<kLanes, kScores>& logits, TokenScores<kLanes, kScores>& scores) {
  const float highest = logits.Highest();
  if constexpr (kFunction == ScoreFunction::kSigmoid) return SigmoidsOf(logits, highest, scores);
  const GateScore score = SharesOf(logits, highest, scores);
#pragma unroll
  for (int n = 0; n < kScores; ++n) scores.values[n] *= score.largest_probability;
  return score;
}

// Makes gradients of logits, as LogitGradientsOf and AddLossGradients have them, in the memory of the logits; kLanes
// lanes for a token. All of a token's lanes have read its row before one writes to it, because they have summed it up.
template <typename Element, int kLanes, int kScores, ScoreFunction kFunction>
__global__ void __launch_bounds__(kGateThreads) ScoresKernel(const __grid_constant__ ScoreGradients args) {
  using Scores = TokenScores<kLanes, kScores>;
  WeightRule rule = args.weights;
  rule.function = kFunction;
  const int experts = args.shape.experts, choices = args.chosen.choices, thread = static_cast<int>(threadIdx.x),
            lane = thread % kLanes;
  constexpr bool kInPieces = sizeof(Element) < sizeof(float);
  constexpr int kSums = kInPieces ? kPieces : 1;
  const int first = static_cast<int>(blockIdx.x) * args.launch.tokens_per_block,
            end = min(first + args.launch.tokens_per_block, args.tokens);
  for (int start = first; start < end; start += kGateThreads / kLanes) {
    const int index = start + thread / kLanes;
    const int64_t token = index < end ? index : start;
    float* const row = args.scratch.logits + token * kSums * experts;
    Scores scores, choice_slopes, gradients;
    auto logits = Scores::Load(row, lane, experts, /*other=*/-INFINITY);
#pragma unroll 1
    for (int sum = 1; sum < kSums; ++sum) {
      const auto more = Scores::Load(row + sum * experts, lane, experts, /*other=*/0);
#pragma unroll
      for (int n = 0; n < kScores; ++n) logits.values[n] += more.values[n];
    }
    if (args.bias != nullptr) {
#pragma unroll
      for (int n = 0; n < kScores; ++n) {
        const int expert = Scores::ExpertAt(lane, n);
        if (expert < experts) logits.values[n] += args.bias[expert];
      }
    }
    const GateScore score = ScoresOf<kFunction>(logits, scores);
    const float* const weights = args.chosen.weights + token * choices;
    const float* const weight_gradients = args.chosen.gradients + token * choices;
    float mean = 0;
    for (int choice = 0; choice < choices; ++choice) mean += weights[choice] * weight_gradients[choice];
    // For each token anew: kept from one to the next, they would take the registers that the scores need.
    const auto slopes = Scores::Load(args.scratch.slopes, lane, experts, /*other=*/0);
    const float mean_loss = Scores::SumOf([&](int n) { return scores.values[n] * slopes.values[n]; });
    const LossSlopes losses = {kFunction, mean_loss * score.probability, args.log_sum_exp_slope * score.log_sum_exp,
                               score};
    const float of_all = rule.AmongAll() ? mean : 0;  // Which every logit takes off.
#pragma unroll
    for (int n = 0; n < kScores; ++n) {
      gradients.values[n] = losses.At(logits.values[n], scores.values[n], slopes.values[n]) - scores.values[n] * of_all;
      choice_slopes.values[n] = rule.SlopeAt(logits.values[n]);
    }
    const float subtracted = rule.kind == WeightRule::kAmongChosen ? mean / rule.scale : 0;
    for (int choice = 0; rule.kind != WeightRule::kFixed && choice < choices; ++choice) {
      const int expert = args.chosen.experts[token * choices + choice];
      const float gradient = weights[choice] * (weight_gradients[choice] - subtracted);
#pragma unroll
      for (int n = 0; n < kScores; ++n) {
        gradients.values[n] += expert == Scores::ExpertAt(lane, n) ? gradient * choice_slopes.values[n] : 0;
      }
    }
#pragma unroll
    for (int n = 0; n < kScores; ++n) {
      const int expert = Scores::ExpertAt(lane, n);
      if (index >= end || expert >= experts) continue;
      if constexpr (kInPieces) {
        Pieces(gradients.values[n]).StoreGradient(reinterpret_cast<Bfloat16*>(row) + expert, experts);
      } else {
        row[expert] = gradients.values[n];
      }
    }
  }
}

// Finds the gradient of every token's weight where weights multiply what experts get, a warp for a token.
template <typename Element, int kCount>
__global__ void WeightGradientsKernel(const Element* tokens, const Element* tokens_gradient, int rows, int columns,
                                      RowLaunch launch, float* weight_gradients) {
  for (int64_t row = launch.FirstRow(blockIdx.x, threadIdx.x); row < rows; row += launch.RowStride()) {
    const float sum =
        SumOfWarp(ProductOfLane<kCount>(tokens + row * columns, tokens_gradient + row * columns,
                                        launch.FirstAccess(threadIdx.x), columns / kCount, launch.AccessStride()));
    if (launch.FirstAccess(threadIdx.x) == 0) weight_gradients[row] = sum;
  }
}

// The gradient of the gate's bias is the sum of the logits' gradients over all tokens. A block adds those of
// kBiasColumns experts over kTokensOfBiasPart tokens, which the threads of an expert share out.
constexpr int kBiasColumns = 32, kTokensOfBiasPart = 256;
int BiasParts(const GateShape& shape, int tokens) {
  return shape.router.bias ? (tokens + kTokensOfBiasPart - 1) / kTokensOfBiasPart : 0;
}

// Rows of gradients begin `stride` elements apart.
template <typename Element>
__global__ void BiasPartsKernel(const Element* gradients, int tokens, int experts, int stride, float* parts) {
  constexpr int kThreadsOfColumn = kThreads / kBiasColumns;
  constexpr int kSums = sizeof(Element) < sizeof(float) ? kPieces : 1;
  __shared__ float sums[kThreadsOfColumn][kBiasColumns];
  const int x = static_cast<int>(threadIdx.x) % kBiasColumns, y = static_cast<int>(threadIdx.x) / kBiasColumns;
  const int expert = static_cast<int>(blockIdx.y) * kBiasColumns + x, part = static_cast<int>(blockIdx.x);
  const int end = min((part + 1) * kTokensOfBiasPart, tokens);
  float sum = 0;
  for (int token = part * kTokensOfBiasPart + y; token < end && expert < experts; token += kThreadsOfColumn) {
    const Element* const row = gradients + static_cast<int64_t>(token) * stride + expert;
#pragma unroll
    for (int piece = 0; piece < kSums; ++piece) sum += ValueOf(row[piece * experts]);
  }
  sums[y][x] = sum;
  __syncthreads();
  if (y > 0 || expert >= experts) return;
  float all = 0;
  for (int i = 0; i < kThreadsOfColumn; ++i) all += sums[i][x];
  parts[static_cast<int64_t>(part) * experts + expert] = all;
}

// in_gradient = tokens_gradient, times the weight of the token where kWeighs, + shared_gradient, where there is one, +
// sums.
template <typename Element, int kCount, bool kWeighs>
__global__ void AddGradientsKernel(const Element* tokens_gradient, const float* weights, const Element* shared_gradient,
                                   const float* sums, int columns, int64_t values, Element* in_gradient) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads * kCount;
#pragma unroll 2
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount; i < values; i += stride) {
    float gradient[kCount];
    LoadValues(tokens_gradient + i, gradient);
    if constexpr (kWeighs) {
      const float weight = weights[i / columns];
#pragma unroll
      for (float& value : gradient) value *= weight;
    }
    if (shared_gradient != nullptr) {
      float shared[kCount];
      LoadValues(shared_gradient + i, shared);
#pragma unroll
      for (int n = 0; n < kCount; ++n) gradient[n] += shared[n];
    }
    constexpr int kAtOnce = kCount < 4 ? kCount : 4;
#pragma unroll
    for (int n = 0; n < kCount; n += kAtOnce) {
      float sum[kAtOnce];
      LoadValues(sums + i + n, sum);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) gradient[n + j] += sum[j];
    }
    StoreValues(gradient, in_gradient + i);
  }
}

__global__ void SumPartsKernel(const float* parts, int count, int64_t values, float* sums) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < values; i += stride) {
    float sum = 0;
    for (int part = 0; part < count; ++part) sum += parts[part * values + i];
    sums[i] = sum;
  }
}

void StartAddGradients(const GateShape& shape, const GateGradientArgs& args, const float* sums, int first, int rows,
                       cudaStream_t stream) {
  const size_t begin = first * shape.rows.row_bytes(), bytes = rows * shape.rows.row_bytes();
  const auto at = [&](const std::byte* data) { return data == nullptr ? nullptr : data + begin; };
  const std::byte *const tokens = at(args.tokens_gradient), *const shared = at(args.shared_gradient);
  std::byte* const in = args.in_gradient + begin;
  const int columns = shape.rows.columns;
  const int64_t values = static_cast<int64_t>(rows) * columns;
  const bool weighs = shape.router.weighs_input;
  const int elements =
      ElementsPerAccess(shape.rows.element_bytes(), weighs ? shape.rows.row_bytes() : bytes, {tokens, shared, in});
  ForElements(shape.rows.type, elements, [&]<typename Element>(Element, auto count) {
    constexpr int kCount = decltype(count)::value;
    const RowLaunch launch = LaunchOfRows(values / kCount, 1);
    if (launch.blocks == 0) return;
    Start(weighs ? AddGradientsKernel<Element, kCount, true> : AddGradientsKernel<Element, kCount, false>,
          {dim3(launch.blocks), kThreads}, stream, reinterpret_cast<const Element*>(tokens),
          args.routing.weight + first, reinterpret_cast<const Element*>(shared), sums, columns, values,
          reinterpret_cast<Element*>(in));
  });
}

void StartWeightGradients(const GateShape& shape, const GateGradientArgs& args, float* weight_gradients,
                          cudaStream_t stream) {
  const int rows = args.tokens.valid_rows, columns = shape.rows.columns;
  const RowLaunch launch = LaunchOfWarps(rows);
  if (launch.blocks == 0) return;
  const int elements =
      ElementsPerAccess(shape.rows.element_bytes(), shape.rows.row_bytes(), {args.tokens.data, args.tokens_gradient});
  ForElements(shape.rows.type, elements, [&]<typename Element>(Element, auto count) {
    Start(WeightGradientsKernel<Element, decltype(count)::value>, {dim3(launch.blocks), kThreads}, stream,
          reinterpret_cast<const Element*>(args.tokens.data), reinterpret_cast<const Element*>(args.tokens_gradient),
          rows, columns, launch, weight_gradients);
  });
}

// Queues the three products on a stream: logits, the gradient of tokens, and that of the gate's weights; and of the
// same gradients of logits that of the gate's bias.
class GateProducts {
 public:
  GateProducts(const GateShape& shape, const float* gate_weight, const GateGradientArgs& args,
               const GateGradientScratch& scratch, GroupedGemm& gemm, cudaStream_t stream)
      : shape_(shape), args_(args), scratch_(scratch), gate_weight_(gate_weight), gemm_(gemm), stream_(stream) {}

  // First of the three: the others need the pieces of weights that it makes.
  Status Logits() {
    const int64_t values = static_cast<int64_t>(shape_.experts) * columns();
    if (in_pieces() && values > 0) {
      Start(WeightPiecesKernel, {dim3(LaunchOfRows(values, 1).blocks), kThreads}, stream_, gate_weight_, values,
            reinterpret_cast<Bfloat16*>(scratch_.weight_pieces));
    }
    return Multiply({.kind = ProductShape::Kind::kTransposedB,
                     .type = type(),
                     .results = ElementType::kFloat32,
                     .inner = columns(),
                     .columns = LogitsOfRow(shape_),
                     .a_stride = columns(),
                     .b_stride = columns(),
                     .c_stride = LogitsOfRow(shape_)},
                    {args_.tokens.data, weights(), Bytes(scratch_.logits), tokens()});
  }

  Status InputGradient() {
    // The last three of the pieces.
    const int64_t first_piece = in_pieces() ? shape_.experts * int64_t{shape_.rows.element_bytes()} : 0;
    const int at_once = TokensAtOnce(shape_, tokens());
    for (int first = 0; first < tokens(); first += at_once) {
      const int rows = std::min(at_once, tokens() - first);
      RETURN_IF_ERROR(Multiply(
          {.type = type(),
           .results = ElementType::kFloat32,
           .inner = LogitsOfRow(shape_),
           .columns = columns(),
           .a_stride = GradientStride(shape_),
           .b_stride = columns(),
           .c_stride = columns()},
          {GradientsOf(first) + first_piece, weights() + first_piece * columns(), Bytes(scratch_.sums), rows}));
      StartAddGradients(shape_, args_, scratch_.sums, first, rows, stream_);
    }
    return OkStatus();
  }

  Status WeightGradient() {
    const int of_part = TokensOfPart(shape_, tokens()), parts = PartsOf(shape_, tokens());
    const int64_t values = static_cast<int64_t>(shape_.experts) * columns(), part_values = values * PiecesOf(shape_);
    std::vector<Product> products;
    for (int part = 0; part < parts; ++part) {
      const int first = part * of_part;
      products.push_back({GradientsOf(first), args_.tokens.data + first * shape_.rows.row_bytes(),
                          Bytes(scratch_.parts + part * part_values), std::min(of_part, tokens() - first)});
    }
    RETURN_IF_ERROR(gemm_.Multiply({.kind = ProductShape::Kind::kTransposedA,
                                    .type = type(),
                                    .inner = LogitsOfRow(shape_),
                                    .columns = columns(),
                                    .a_stride = GradientStride(shape_),
                                    .b_stride = columns(),
                                    .c_stride = columns()},
                                   products, stream_));
    if (values > 0) {
      Start(SumPartsKernel, {dim3(LaunchOfRows(values, 1).blocks), kThreads}, stream_, scratch_.parts,
            parts * PiecesOf(shape_), values, args_.gate_gradient);
    }
    return OkStatus();
  }

  void BiasGradient() {
    const int experts = shape_.experts, parts = BiasParts(shape_, tokens());
    if (parts > 0) {
      const TileLaunch launch = LaunchOfTiles(tokens(), experts, kTokensOfBiasPart, kBiasColumns);
      const auto start = [&]<typename Element>(Element) {
        Start(BiasPartsKernel<Element>, {dim3(launch.blocks_x, launch.blocks_y), kThreads}, stream_,
              reinterpret_cast<const Element*>(scratch_.logits), tokens(), experts, GradientStride(shape_),
              scratch_.bias_parts);
      };
      in_pieces() ? start(Bfloat16{}) : start(float{});
    }
    Start(SumPartsKernel, {dim3(LaunchOfRows(experts, 1).blocks), kThreads}, stream_, scratch_.bias_parts, parts,
          int64_t{experts}, args_.gate_gradient + static_cast<int64_t>(experts) * columns());
  }

 private:
  static std::byte* Bytes(float* values) { return reinterpret_cast<std::byte*>(values); }
  ElementType type() const { return shape_.rows.type; }
  bool in_pieces() const { return PiecesOf(shape_) > 1; }
  int columns() const { return shape_.rows.columns; }
  int tokens() const { return args_.tokens.valid_rows; }
  std::byte* GradientsOf(int token) const {
    return Bytes(scratch_.logits + static_cast<int64_t>(token) * LogitsOfRow(shape_));
  }
  const std::byte* weights() const {
    return in_pieces() ? scratch_.weight_pieces : reinterpret_cast<const std::byte*>(gate_weight_);
  }
  Status Multiply(const ProductShape& shape, const Product& product) {
    return gemm_.Multiply(shape, {&product, 1}, stream_);
  }

  const GateShape shape_;
  const GateGradientArgs& args_;
  const GateGradientScratch scratch_;
  const float* const gate_weight_;
  GroupedGemm& gemm_;
  const cudaStream_t stream_;
};

// The places of the pieces of scratch, each a multiple of 256 bytes behind the first.
struct ScratchPlaces {
  size_t logits = 0, slopes, weight_gradients, bias_parts, sums, parts, weight_pieces, end;

  ScratchPlaces(const GateShape& shape, int tokens) {
    const size_t row = sizeof(float) * shape.rows.columns, weights = row * shape.experts;
    const auto behind = [](size_t begin, size_t bytes) { return begin + (bytes + 255) / 256 * 256; };
    slopes = behind(logits, sizeof(float) * LogitsOfRow(shape) * tokens);
    weight_gradients = behind(slopes, sizeof(float) * shape.experts);
    bias_parts = behind(weight_gradients, shape.router.weighs_input ? sizeof(float) * tokens : 0);
    sums = behind(bias_parts, sizeof(float) * shape.experts * BiasParts(shape, tokens));
    parts = behind(sums, row * TokensAtOnce(shape, tokens));
    weight_pieces = behind(parts, weights * PiecesOf(shape) * PartsOf(shape, tokens));
    end = behind(weight_pieces, PiecesOf(shape) == 1 ? 0 : weights / sizeof(float) * sizeof(Bfloat16) * kKeptPieces);
  }
};

}  // namespace

size_t GateGradientScratch::Bytes(const GateShape& shape, const TokenRows& tokens) {
  return ScratchPlaces(shape, tokens.valid_rows).end;
}

GateGradientScratch GateGradientScratch::At(std::byte* data, const GateShape& shape, const TokenRows& tokens) {
  const ScratchPlaces places(shape, tokens.valid_rows);
  const auto floats = [&](size_t place) { return reinterpret_cast<float*>(data + place); };
  return {.logits = floats(places.logits),
          .slopes = floats(places.slopes),
          .weight_gradients = floats(places.weight_gradients),
          .bias_parts = floats(places.bias_parts),
          .sums = floats(places.sums),
          .parts = floats(places.parts),
          .weight_pieces = data + places.weight_pieces};
}

Status GateGradient(const GateShape& shape, const WeightRule& weights, const RouterLosses& losses,
                    const DeviceGate& gate, const GateGradientArgs& args, const GateGradientScratch& scratch,
                    GroupedGemm& gemm, cudaStream_t stream) {
  const int tokens = args.tokens.valid_rows;
  const bool weighs_input = shape.router.weighs_input;
  if (weighs_input) StartWeightGradients(shape, args, scratch.weight_gradients, stream);
  GateProducts products(shape, gate.weight, args, scratch, gemm, stream);
  RETURN_IF_ERROR(products.Logits());
  Start(SlopesKernel, {dim3(1), kThreads}, stream, args.pair_counts.data(), static_cast<int>(args.pair_counts.size()),
        shape.experts, losses.aux_loss_coefficient / args.batch_tokens, scratch.slopes);
  ScoreGradients scores = {.shape = shape,
                           .weights = weights,
                           .chosen = {.experts = args.routing.expert,
                                      .weights = args.routing.weight,
                                      .gradients = weighs_input ? scratch.weight_gradients : args.routing_gradient,
                                      .choices = shape.choices},
                           .bias = gate.bias,
                           .scratch = scratch,
                           .log_sum_exp_slope = static_cast<float>(2 * losses.z_loss_coefficient / args.batch_tokens),
                           .tokens = tokens};
  ForScores(shape.experts, [&](auto lanes, auto count) {
    scores.launch = LaunchOfGate(tokens, decltype(lanes)::value);
    if (scores.launch.blocks == 0) return;
    const auto start = [&]<typename Element>(Element) {
      constexpr int kLanes = decltype(lanes)::value, kScores = decltype(count)::value;
      const bool sigmoid = weights.function == ScoreFunction::kSigmoid;
      Start(sigmoid ? ScoresKernel<Element, kLanes, kScores, ScoreFunction::kSigmoid>
                    : ScoresKernel<Element, kLanes, kScores, ScoreFunction::kSoftmax>,
            {dim3(scores.launch.blocks), kGateThreads}, stream, scores);
    };
    shape.rows.type == ElementType::kFloat32 ? start(float{}) : start(Bfloat16{});
  });
  RETURN_IF_ERROR(products.InputGradient());
  RETURN_IF_ERROR(products.WeightGradient());
  if (shape.router.bias) products.BiasGradient();
  return LaunchStatus("the gradient of the gate");
}

}  // namespace moeplan::executor::cuda
