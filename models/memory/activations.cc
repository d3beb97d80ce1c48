#include "models/memory/activations.h"

namespace moeplan {
namespace {

constexpr double kMaskBytes = 1;

double WholeRowBytes(const ActivationSaving& saving) { return 2 * saving.bytes_per_element + kMaskBytes; }

}  // namespace

double AttentionActivationBytes(const AttentionShape& shape, const ActivationSaving& saving) {
  const double tensor = saving.tensor_parallel, rows = saving.sequence_parallel ? tensor : 1;
  if (saving.recompute == Recompute::kFull) return shape.tokens * saving.bytes_per_element * shape.model_dim / rows;
  const double whole = WholeRowBytes(saving) * shape.model_dim / rows;
  const double cut = saving.bytes_per_element * shape.projected_dim / tensor;
  const double scores =
      saving.recompute == Recompute::kNone ? WholeRowBytes(saving) * shape.heads * shape.keys / tensor : 0;
  return shape.tokens * (whole + cut + scores);
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
