// What products and attention take on a processor of which only a few figures are known.
//
// A product is cut into tiles of 128 × 128, which the GPU's processors take in waves; where there are fewer tiles than
// processors, long sums are cut too. It takes as long as its waves compute or as its operands and results move,
// whichever is longer, and a launch. Weight gradients are read and written in FP32. Attention computes half of the
// flops that KernelShape counts, since its mask is causal. Values only; pure.
#pragma once

#include "models/cost/operation.h"

namespace moeplan {

struct Roofline {
  double launch_s = 0;                                                   // Of the shortest kernel.
  double flops_per_s = 0;                                                // Of long products, whole GPU, above 0.
  double bytes_per_s = 0;                                                // Above 0.
  double processors = 1;                                                 // At least 1.
  double attention_flops_per_s = 0, attention_gradient_flops_per_s = 0;  // Computed ones, above 0.
  // How many times as fast as in BF16 products of converted operands are; 0: there are none.
  double fp8_speedup = 0, mxfp8_speedup = 0, fp4_speedup = 0;
  // 90 % of kernels take time × [1 / ratio, ratio].
  double error_ratio = 1;

  friend bool operator==(const Roofline&, const Roofline&) = default;
};

// Seconds of a kernel with a shape (IsLinear or IsAttention) on `flops`, as KernelShape counts them.
double RooflineS(const Roofline& roofline, Kernel kernel, const KernelShape& shape, double flops,
                 int bytes_per_element);

}  // namespace moeplan
