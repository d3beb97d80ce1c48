#include "executor/cuda/gate_kernels.h"
#include "models/text.h"
#include "tests/gpu/bench/patterns.h"
#include "tests/gpu/bench/timing.h"

namespace moeplan::executor::cuda {
namespace {

constexpr int kColumns = 4096;

GateShape ShapeOf(int experts) {
  return {.rows = {.type = ElementType::kBfloat16, .columns = kColumns}, .experts = experts, .choices = 2};
}

Measured MeasureRoute(const std::string& name, const GateShape& shape, int tokens, double copy_bytes_per_s) {
  constexpr double kTarget = 0.6;
  const size_t pairs = static_cast<size_t>(tokens) * shape.choices;
  const TokenRows rows = {.rows_per_block = tokens, .valid_rows = tokens};
  const BenchMemory scratch(GateScratch::Bytes(shape, rows)), routing(Routing::Bytes(pairs));
  const BenchMemory sums(RouterSums::Count(shape.experts) * sizeof(double));
  scratch.Fill(FloatPattern());
  const GateArgs args = {.tokens = rows,
                         .routing = Routing::At(routing.data(), pairs),
                         .capacity = tokens * shape.choices / shape.experts,
                         .sums = RouterSums::At(sums.As<double>(), shape.experts)};
  const GateScratch at = GateScratch::At(scratch.data(), shape, rows);
  const double bytes =
      static_cast<double>(tokens) * shape.experts * sizeof(float) + static_cast<double>(Routing::Bytes(pairs));
  return OfCopy(name, MedianSeconds([&] { CheckOk(Route(shape, args, at, nullptr)); }), bytes, copy_bytes_per_s,
                kTarget);
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
    results.push_back(
        {.name = StrCat("gate_logits.", experts, "_experts"),
         .seconds = MedianSeconds([&] { CheckOk(GateLogits(shape, weight.As<float>(), rows, scratch, nullptr)); }),
         .flops = 2.0 * kLogitTokens * kColumns * experts});
  }
}

}  // namespace moeplan::executor::cuda
