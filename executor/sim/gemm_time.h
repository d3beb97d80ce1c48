// How long a simulated GPU computes: the curve of its GEMM efficiency.
//
// A GEMM of m × n × k reaches  gemm_efficiency · m/(m + 128) · n/(n + 128) · k/(k + 128)  of the peak: half as much
// where one dimension is 128, the edge of the tiles that libraries cut outputs into, and next to all of it from some
// thousands on. A grouped GEMM takes the sum of its members' times: they fill the GPU together, each as well as its own
// size lets it. Pure.
#pragma once

#include "models/cluster/simulated_cluster.h"

namespace moeplan::executor {

inline constexpr double kHalfEfficientDim = 128;

inline double GemmEfficiency(const SimulatedGpu& gpu, double m, double n, double k) {
  const auto share = [](double dim) { return dim / (dim + kHalfEfficientDim); };
  return gpu.gemm_efficiency * share(m) * share(n) * share(k);
}

inline double GemmS(const SimulatedGpu& gpu, double m, double n, double k) {
  if (m == 0 || n == 0 || k == 0) return 0;
  return 2 * m * n * k / (gpu.peak_flops_per_s * GemmEfficiency(gpu, m, n, k));
}

}  // namespace moeplan::executor
