#include "executor/cuda/gate_kernels.h"
#include "models/text.h"
#include "tests/gpu/bench/patterns.h"
#include "tests/gpu/bench/timing.h"

namespace moeplan::executor::cuda {

void MeasureGate(double copy_bytes_per_s, std::vector<Measured>& results) {
  constexpr int kColumns = 4096;
  constexpr double kTarget = 0.6;
  constexpr double kLogitBytes = 128.0 * 1024 * 1024;
  for (const int experts : {8, 64, 256}) {
    const int tokens = static_cast<int>(kLogitBytes / sizeof(float) / experts), logit_tokens = std::min(tokens, 16384);
    const GateShape shape = {
        .rows = {.type = ElementType::kBfloat16, .columns = kColumns}, .experts = experts, .choices = 2};
    const size_t pairs = static_cast<size_t>(tokens) * shape.choices;
    TokenRows rows = {.rows_per_block = tokens, .valid_rows = tokens};
    const BenchMemory scratch_memory(GateScratch::Bytes(shape, rows)), routing(Routing::Bytes(pairs));
    const BenchMemory sums(RouterSums::Count(experts) * sizeof(double)), input(logit_tokens * shape.rows.row_bytes());
    const BenchMemory weight(static_cast<size_t>(experts) * kColumns * sizeof(float));
    const GateScratch scratch = GateScratch::At(scratch_memory.data(), shape, rows);
    scratch_memory.Fill(FloatPattern());
    FillElements(input, shape.rows.type);
    weight.Fill(FloatPattern());
    const GateArgs args = {.tokens = rows,
                           .routing = Routing::At(routing.data(), pairs),
                           .capacity = tokens * shape.choices / experts,
                           .sums = RouterSums::At(sums.As<double>(), experts)};
    const double bytes =
        static_cast<double>(tokens) * experts * sizeof(float) + static_cast<double>(Routing::Bytes(pairs));
    results.push_back(OfCopy(StrCat("route.", experts, "_experts"),
                             MedianSeconds([&] { CheckOk(Route(shape, args, scratch, nullptr)); }), bytes,
                             copy_bytes_per_s, kTarget));
    rows = {.data = input.data(), .rows_per_block = logit_tokens, .valid_rows = logit_tokens};
    results.push_back(
        {.name = StrCat("gate_logits.", experts, "_experts"),
         .seconds = MedianSeconds([&] { CheckOk(GateLogits(shape, weight.As<float>(), rows, scratch, nullptr)); }),
         .flops = 2.0 * logit_tokens * kColumns * experts});
  }
}

}  // namespace moeplan::executor::cuda
