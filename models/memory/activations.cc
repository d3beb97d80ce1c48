#include "models/memory/activations.h"

namespace moeplan {
namespace {

constexpr double kMaskBytes = 1;
constexpr double kLogSumBytes = 4;  // FlashAttention, Algorithm 1: the logarithm of a row's sum.

double WholeRowBytes(const ActivationSaving& saving) { return 2 * saving.bytes_per_element + kMaskBytes; }

}  // namespace

double AttentionActivationBytes(const AttentionShape& shape, const ActivationSaving& saving) {
  const double tensor = saving.tensor_parallel, rows = saving.sequence_parallel ? tensor : 1;
  if (saving.recompute == Recompute::kFull) return shape.tokens * saving.bytes_per_element * shape.model_dim / rows;
  const double whole = WholeRowBytes(saving) * shape.model_dim / rows;
  const double cut = saving.bytes_per_element * shape.projected_dim / tensor;
  if (saving.recompute == Recompute::kSelective) return shape.tokens * (whole + cut);
  const double of_a_query = saving.stores_scores ? WholeRowBytes(saving) * shape.keys : kLogSumBytes;
  return shape.tokens * (whole + cut + of_a_query * shape.heads / tensor);
}

double FeedForwardActivationBytes(const FeedForwardShape& shape, const ActivationSaving& saving) {
  if (saving.recompute == Recompute::kFull) return 0;
  const double tensor = saving.tensor_parallel;
  const double row_ranks = saving.sequence_parallel ? tensor : tensor / shape.shards;
  const double whole = WholeRowBytes(saving) * shape.model_dim / row_ranks;
  const double cut = saving.bytes_per_element * shape.matrices * shape.hidden_dim / tensor;
  return shape.tokens * shape.copies * (whole + cut);
}

}  // namespace moeplan
