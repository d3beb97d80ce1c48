#include "executor/cuda/gate_kernels.h"
#include "executor/cuda/grouped_gemm.h"
#include "models/text.h"
#include "tests/gpu/bench/patterns.h"
#include "tests/gpu/bench/timing.h"

namespace moeplan::executor::cuda {
namespace {

constexpr int kColumns = 4096;

GateShape ShapeOf(int experts) {
  return {.rows = {.type = ElementType::kBfloat16, .columns = kColumns}, .experts = experts, .choices = 2};
}

GateShape DeepSeekV3() {
  GateShape shape = ShapeOf(/*experts=*/256);
  shape.choices = 8;
  shape.router = {.score_function = ScoreFunction::kSigmoid,
                  .weight_scale = 2.5,
                  .expert_groups = 8,
                  .groups_per_token = 4,
                  .correction_bias = true};
  return shape;
}

Measured MeasureRoute(const std::string& name, const GateShape& shape, int tokens, double copy_bytes_per_s) {
  constexpr double kTarget = 0.6;
  const size_t pairs = static_cast<size_t>(tokens) * shape.choices;
  const TokenRows rows = {.rows_per_block = tokens, .valid_rows = tokens};
  const BenchMemory scratch(GateScratch::Bytes(shape, rows)), routing(Routing::Bytes(pairs));
  const BenchMemory sums(RouterSums::Count(shape.experts) * sizeof(double));
  const BenchMemory correction_bias(shape.experts * sizeof(float));
  for (const BenchMemory* memory : {&scratch, &correction_bias}) memory->Fill(FloatPattern());
  const GateArgs args = {.tokens = rows,
                         .routing = Routing::At(routing.data(), pairs),
                         .capacity = tokens * shape.choices / shape.experts,
                         .sums = RouterSums::At(sums.As<double>(), shape.experts)};
  const GateScratch at = GateScratch::At(scratch.data(), shape, rows);
  const double bytes =
      static_cast<double>(tokens) * shape.experts * sizeof(float) + static_cast<double>(Routing::Bytes(pairs));
  const float* const correction = shape.router.correction_bias ? correction_bias.As<float>() : nullptr;
  return OfCopy(name, MedianSeconds([&](cudaStream_t stream) { CheckOk(Route(shape, correction, args, at, stream)); }),
                bytes, copy_bytes_per_s, kTarget);
}

// The gradient of the gate of a layer with 4,096 tokens, whose three products (logits anew, tokens, weights) are as
// large as each other.
Measured MeasureGradient(const std::string& name, GateShape shape, GroupedGemm& gemm) {
  constexpr int kTokens = 4096, kModelDim = 2048;
  const int experts = shape.experts;
  shape.rows.columns = kModelDim;
  const TokenRows rows = {.rows_per_block = kTokens, .valid_rows = kTokens};
  const size_t pairs = static_cast<size_t>(kTokens) * shape.choices, token_bytes = kTokens * shape.rows.row_bytes(),
               weight_bytes = static_cast<size_t>(experts) * kModelDim * sizeof(float);
  const BenchMemory tokens(token_bytes), tokens_gradient(token_bytes), in_gradient(token_bytes);
  const BenchMemory weight(weight_bytes), gate_gradient(weight_bytes), routing_gradient(pairs * sizeof(float));
  const BenchMemory routing_memory(Routing::Bytes(pairs)), pair_counts(experts * sizeof(int32_t));
  const BenchMemory scratch(GateGradientScratch::Bytes(shape, rows));
  const Routing routing = Routing::At(routing_memory.data(), pairs);
  std::vector<int32_t> chosen(pairs);
  for (size_t pair = 0; pair < pairs; ++pair) chosen[pair] = static_cast<int32_t>(pair % experts);
  cudaMemcpy(routing.expert, chosen.data(), pairs * sizeof(int32_t), cudaMemcpyHostToDevice);
  cudaMemcpy(routing.weight, std::vector<float>(pairs, 0.5F).data(), pairs * sizeof(float), cudaMemcpyHostToDevice);
  for (const BenchMemory* memory : {&tokens, &tokens_gradient}) FillElements(*memory, shape.rows.type);
  for (const BenchMemory* memory : {&weight, &routing_gradient}) memory->Fill(FloatPattern());
  pair_counts.Fill(std::vector<int32_t>{static_cast<int32_t>(pairs / experts)});

  GateGradientArgs args = {.tokens = rows,
                           .routing = routing,
                           .routing_gradient = routing_gradient.As<float>(),
                           .tokens_gradient = tokens_gradient.data(),
                           .in_gradient = in_gradient.data(),
                           .gate_gradient = gate_gradient.As<float>(),
                           .batch_tokens = kTokens,
                           .pair_counts = {pair_counts.As<int32_t>(), static_cast<size_t>(experts)}};
  args.tokens.data = tokens.data();
  const RouterLosses losses = {.aux_loss_coefficient = 0.01, .z_loss_coefficient = 0.001};
  const WeightRule rule = {.function = shape.router.score_function,
                           .scale = static_cast<float>(shape.router.weight_scale)};
  const GateGradientScratch at = GateGradientScratch::At(scratch.data(), shape, rows);
  return {.name = name,
          .seconds = MedianSeconds([&](cudaStream_t stream) {
            CheckOk(GateGradient(shape, rule, losses, {.weight = weight.As<float>()}, args, at, gemm, stream));
          }),
          .flops = 3 * 2.0 * kTokens * kModelDim * experts};
}

}  // namespace

void MeasureGate(double copy_bytes_per_s, std::vector<Measured>& results) {
  constexpr double kLogitBytes = 128.0 * 1024 * 1024;
  for (const int experts : {8, 64, 256}) {
    const GateShape shape = ShapeOf(experts);
    // More logits than the second-level cache holds, then as many as a layer has.
    const int many = static_cast<int>(kLogitBytes / sizeof(float) / experts);
    results.push_back(MeasureRoute(StrCat("route.", experts, "_experts"), shape, many, copy_bytes_per_s));
    for (const int tokens : {4096, 16384}) {
      results.push_back(
          MeasureRoute(StrCat("route.", experts, "_experts.", tokens, "_tokens"), shape, tokens, copy_bytes_per_s));
    }
    constexpr int kLogitTokens = 16384;
    const TokenRows all = {.rows_per_block = kLogitTokens, .valid_rows = kLogitTokens};
    const BenchMemory input(kLogitTokens * shape.rows.row_bytes()), scratch_memory(GateScratch::Bytes(shape, all));
    const BenchMemory weight(static_cast<size_t>(experts) * kColumns * sizeof(float));
    FillElements(input, shape.rows.type);
    weight.Fill(FloatPattern());
    TokenRows rows = all;
    rows.data = input.data();
    const GateScratch scratch = GateScratch::At(scratch_memory.data(), shape, rows);
    results.push_back({.name = StrCat("gate_logits.", experts, "_experts"),
                       .seconds = MedianSeconds([&](cudaStream_t stream) {
                         CheckOk(GateLogits(shape, {.weight = weight.As<float>()}, rows, scratch, stream));
                       }),
                       .flops = 2.0 * kLogitTokens * kColumns * experts});
  }
  for (const int tokens : {4096, 16384}) {
    results.push_back(
        MeasureRoute(StrCat("route.deepseek_v3.", tokens, "_tokens"), DeepSeekV3(), tokens, copy_bytes_per_s));
  }
  StatusOr<std::unique_ptr<GroupedGemm>> gemm = GroupedGemm::Make();
  CheckOk(gemm.status());
  for (const int experts : {8, 64, 128, 256}) {
    results.push_back(MeasureGradient(StrCat("gate_gradient.", experts, "_experts"), ShapeOf(experts), **gemm));
  }
  results.push_back(MeasureGradient("gate_gradient.deepseek_v3", DeepSeekV3(), **gemm));
}

}  // namespace moeplan::executor::cuda
