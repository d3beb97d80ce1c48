#include "executor/cuda/codec_kernels.h"
#include "models/text.h"
#include "tests/gpu/bench/patterns.h"
#include "tests/gpu/bench/timing.h"

namespace moeplan::executor::cuda {

void MeasureCodecs(double copy_bytes_per_s, std::vector<Measured>& results) {
  constexpr int kRows = 32768, kColumns = 4096;
  constexpr double kTarget = 0.85;
  for (const ElementType type : {ElementType::kBfloat16, ElementType::kFloat32}) {
    const RowShape shape = {.type = type, .columns = kColumns};
    const BenchMemory elements(kRows * shape.row_bytes()), codes(kRows * shape.row_bytes());
    const PlacedRows rows = {.data = elements.data(), .cells = {.rows_per_cell = kRows}};
    for (const Codec codec : {Codec::kFp16, Codec::kFp8, Codec::kFp8Blockwise, Codec::kInt8, Codec::kZfp}) {
      FillElements(elements, type);
      const double bytes =
          kRows * (static_cast<double>(shape.row_bytes()) + EncodedRowBytes(codec, kColumns, shape.element_bytes()));
      const auto add = [&](const char* verb, const std::function<void(cudaStream_t)>& run) {
        results.push_back(OfCopy(StrCat(verb, ".", Name(codec), ".", NameOf(type)), MedianSeconds(run), bytes,
                                 copy_bytes_per_s, kTarget));
      };
      add("encode", [&](cudaStream_t stream) { CheckOk(Encode(codec, shape, rows, codes.data(), stream)); });
      add("decode", [&](cudaStream_t stream) { CheckOk(Decode(codec, shape, codes.data(), rows, stream)); });
    }
  }
}

}  // namespace moeplan::executor::cuda
