// What products in less than BF16 gain and cost where nobody measured them. Pure.
#pragma once

#include "models/cost/roofline.h"
#include "models/layout/layout_answer.h"

namespace moeplan::planner {

inline constexpr Precision kPrecisions[] = {Precision::kBf16, Precision::kFp8, Precision::kMxfp8, Precision::kNvfp4};

// Returns how many times as fast as in BF16 products are, once their operands are converted: 1 for BF16, 0 where the
// hardware has no such products.
double SpeedupOf(const Roofline& roofline, Precision precision);

// Returns its name in layouts, such as "MXFP8".
const char* NameOf(Precision precision);

// Returns the bytes of an element as products read it: with its share of a scale for each 32 (MXFP8) or 16 (NVFP4).
double OperandBytes(Precision precision);

// Returns the bytes that converting an element of BF16 for two products, of which one reads it transposed, reads and
// writes. FP8 with current scaling looks for the largest element first; NVFP4 does, too, and mixes the elements of
// weight gradients' operands. By what a layer's products of TransformerEngine take more with conversion than without
// (docs/examples/gemm_profiling, 2026-05), at 71 % of the memory's rate on B300 and 64 % on H200 NVL: 5.4 and 4.3 for
// FP8, 4.2 for MXFP8, 6.2 for NVFP4.
double ConvertedBytes(Precision precision);

}  // namespace moeplan::planner
