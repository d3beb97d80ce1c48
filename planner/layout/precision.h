// Products in less than BF16 that nobody measured: how much faster they are, and what converting for them costs. Pure.
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

// Returns the bytes that are read and written to convert one element of BF16 for two products, one of which reads it
// transposed. FP8 with current scaling first looks for the largest element; NVFP4 does, too, and mixes the elements of
// weight gradients' operands. The bytes are whole numbers near what a layer's products of TransformerEngine took more
// with conversion than without (docs/examples/gemm_profiling, 2026-05), times the rate of kernels that move memory:
// FP8 5.4 on B300 and 4.3 on H200 NVL, MXFP8 4.2 and NVFP4 6.2 on B300.
double ConvertedBytes(Precision precision);

}  // namespace moeplan::planner
