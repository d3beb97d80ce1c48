#include "models/cost/roofline.h"

#include <algorithm>
#include <cmath>

namespace moeplan {
namespace {

constexpr double kTile = 128, kLeastSum = 1024;
// From here on, what the last wave leaves idle is lost in the rest.
constexpr double kManyWaves = 32;

// Attention of a short sequence is slower: its blocks on the diagonal compute what the mask takes away. Half of the
// rate of an endless sequence is reached at so many tokens, as an H100's median times of 64 and 128 heads at 512 and
// 4,096 tokens say (docs/gpu/README.md). The rates of a Roofline are those at kUsualTokens.
constexpr double kHalfRateTokens = 720, kGradientHalfRateTokens = 1500, kUsualTokens = 4096;
// Nothing shorter was measured. At 8,192 tokens A100, H200, GB200 and GB300 reach 1.02 to 1.18 times the rate at
// kUsualTokens, 1.09 forward and 1.12 backward on average, where the law with these constants says 1.08 and 1.15; at
// 32,768 backward is slower again (cuDNN 9.27, 64 heads of 128: NVIDIA/cudnn-frontend, benchmark/attention_training,
// 2026-09).
constexpr double kShortest = 512, kLongest = 8192;

struct Product {
  double m = 0, n = 0, k = 0;
  double result_bytes = 0;  // Of an element, read or written.
};

Product ProductOf(Kernel kernel, double rows, const KernelShape& shape, double bytes_per_element) {
  const double in = shape.in_features, out = shape.out_features;
  constexpr double kAccumulated = 2 * 4;
  if (kernel == Kernel::kLinearInputGradient) return {rows, in, out, bytes_per_element};
  if (kernel == Kernel::kLinearWeightGradient) return {out, in, rows, kAccumulated};
  return {rows, out, in, bytes_per_element};
}

double LinearS(const Roofline& roofline, Kernel kernel, const KernelShape& shape, double flops, int bytes_per_element) {
  const double experts = shape.experts;
  const double rows = flops / (2.0 * experts * shape.in_features * shape.out_features);
  const Product product = ProductOf(kernel, rows, shape, bytes_per_element);
  const double tiles = experts * std::ceil(product.m / kTile) * std::ceil(product.n / kTile);
  double waves = tiles / roofline.processors;
  if (waves < 1) {
    const double cuts = std::max(1.0, std::min(std::floor(1 / waves), std::floor(product.k / kLeastSum)));
    waves = 1 / cuts;
  } else if (waves < kManyWaves) {
    waves = std::ceil(waves);
  }
  const double computed = 2 * kTile * kTile * product.k * waves * roofline.processors;
  const double moved = experts * ((product.m * product.k + product.n * product.k) * bytes_per_element +
                                  product.m * product.n * product.result_bytes);
  return roofline.launch_s + std::max(computed / roofline.flops_per_s, moved / roofline.bytes_per_s);
}

double TokensSeen(const KernelShape& shape) {
  return shape.window > 0 ? std::min(shape.window, shape.sequence) : shape.sequence;
}

// Returns the rate of attention at so many tokens, over that at kUsualTokens.
double RateAt(double tokens, double half_rate_tokens) {
  tokens = std::clamp(tokens, kShortest, kLongest);
  return tokens / (tokens + half_rate_tokens) * (kUsualTokens + half_rate_tokens) / kUsualTokens;
}

}  // namespace

double RooflineS(const Roofline& roofline, Kernel kernel, const KernelShape& shape, double flops,
                 int bytes_per_element) {
  if (flops <= 0) return 0;
  if (IsLinear(kernel)) return LinearS(roofline, kernel, shape, flops, bytes_per_element);
  // Backward computes the scores again, and two gradients of each of both products.
  constexpr double kCausal = 0.5, kBackward = 2.5;
  if (kernel == Kernel::kAttention) {
    return roofline.launch_s +
           kCausal * flops / (roofline.attention_flops_per_s * RateAt(TokensSeen(shape), kHalfRateTokens));
  }
  return roofline.launch_s +
         kBackward * kCausal * flops /
             (roofline.attention_gradient_flops_per_s * RateAt(TokensSeen(shape), kGradientHalfRateTokens));
}

}  // namespace moeplan
