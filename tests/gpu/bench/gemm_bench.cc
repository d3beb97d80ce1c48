#include <numeric>

#include "executor/cuda/grouped_gemm.h"
#include "models/text.h"
#include "tests/gpu/bench/patterns.h"
#include "tests/gpu/bench/timing.h"

namespace moeplan::executor::cuda {
namespace {

constexpr int kInner = 4096, kExperts = 16;
constexpr double kTarget = 0.9;

std::unique_ptr<GroupedGemm> MakeGemm() {
  StatusOr<std::unique_ptr<GroupedGemm>> gemm = GroupedGemm::Make();
  CheckOk(gemm.ok() ? OkStatus() : gemm.status());
  return std::move(*gemm);
}

}  // namespace

// Experts with as many tokens each and with uneven numbers of them, one of them empty, beside one product of all tokens
// with one matrix, which has the same flops. Of wide matrices and of narrow ones, as experts cut finely have.
void MeasureGemm(std::vector<Measured>& results) {
  const ElementType type = ElementType::kBfloat16;
  const std::unique_ptr<GroupedGemm> gemm = MakeGemm();
  for (const int columns : {2048, 8192}) {
    const RowShape in = {.type = type, .columns = kInner}, out = {.type = type, .columns = columns};
    for (const int tokens_of_expert : {128, 512, 2048}) {
      const int tokens = tokens_of_expert * kExperts;
      const BenchMemory a(tokens * in.row_bytes()), b(kExperts * kInner * out.row_bytes()), c(tokens * out.row_bytes());
      FillElements(a, type);
      FillElements(b, type);
      const ProductShape shape = {.type = type,
                                  .inner = kInner,
                                  .columns = columns,
                                  .a_stride = kInner,
                                  .b_stride = columns,
                                  .c_stride = columns};
      const auto seconds_of = [&](const std::vector<int>& rows) {
        std::vector<Product> products;
        size_t first = 0;
        for (size_t i = 0; i < rows.size(); ++i) {
          products.push_back({.a = a.data() + first * in.row_bytes(),
                              .b = b.data() + i * kInner * out.row_bytes(),
                              .c = c.data() + first * out.row_bytes(),
                              .rows = rows[i]});
          first += rows[i];
        }
        // Products of uneven rows are no part of graphs, whose sizes stay, so all are queued.
        return MedianSecondsQueued([&](cudaStream_t stream) { CheckOk(gemm->Multiply(shape, products, stream)); });
      };
      const std::string of = StrCat(columns, "_columns.", tokens_of_expert);
      const double one = seconds_of({tokens}), flops = 2.0 * tokens * kInner * columns;
      results.push_back({.name = StrCat("one_product.", of), .seconds = one, .flops = flops, .share = 1});
      std::vector<int> even(kExperts, tokens_of_expert), uneven = even;
      for (int i = 0; i + 1 < kExperts; i += 2) {
        const int moved = tokens_of_expert * (i + 2) / kExperts / 8 * 8;
        uneven[i] += moved;
        uneven[i + 1] -= moved;
      }
      for (const auto& [rows, how] : {std::pair(&even, "even"), std::pair(&uneven, "uneven")}) {
        const double seconds = seconds_of(*rows);
        results.push_back({.name = StrCat("experts.", how, ".", of),
                           .seconds = seconds,
                           .flops = flops,
                           .share = one / seconds,
                           .target = tokens_of_expert >= 512 ? kTarget : 0});
      }
    }
  }
}

}  // namespace moeplan::executor::cuda
