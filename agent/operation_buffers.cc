#include "agent/operation_buffers.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "executor/kernels.h"
#include "executor/router_statistics.h"
#include "models/all_to_all/algorithm.h"
#include "models/measurement/cost_key.h"
#include "models/workload/codec.h"

namespace moeplan::agent {
namespace {

size_t RoundUp(double bytes, size_t unit) {
  const auto units = static_cast<size_t>(std::ceil(bytes / static_cast<double>(unit)));
  return std::max<size_t>(units, 1) * unit;
}

size_t RowBytes(const Layer& layer) { return static_cast<size_t>(layer.model_dim) * layer.bytes_per_element; }

}  // namespace

CollectiveBuffers BuffersOf(const CollectiveKey& key, double bytes, int group_rank) {
  // A whole number of FP32 elements for each pair of ranks, twice over for SAA's sums.
  const size_t size = key.group.size, gathers = std::max(1, key.gather_group_size);
  CollectiveBuffers buffers = {.bytes = RoundUp(bytes, size * gathers * sizeof(float))};
  if (key.gather_group_size > 0) buffers.gathered_bytes = buffers.bytes / key.shards * gathers;
  if (key.collective == Collective::kAllToAll && key.algorithm != AllToAllAlgorithm::kDirect) {
    buffers.scratch_bytes = ScratchBlocks(key.algorithm, key.group, group_rank) * (buffers.bytes / size);
  }
  return buffers;
}

bool IsSharedExpert(const KernelKey& key, const Workload& workload) {
  return CountsFlops(key.kernel) && workload.layer.shared_hidden_dim > 0 && key.hidden_dim &&
         key.hidden_dim != KeyOf(key.kernel, workload.layer, workload.layout).hidden_dim;
}

executor::ExpertShard ExpertsOf(const KernelKey& key, const Workload& workload) {
  if (!CountsFlops(key.kernel)) return {};
  const executor::LayerShard shard = executor::ShardOf(workload.layer, workload.layout, /*stage_rank=*/0);
  return IsSharedExpert(key, workload) ? shard.shared : shard.experts;
}

double RowsOf(const KernelKey& key, double size, const Workload& workload) {
  const Layer& layer = workload.layer;
  if (!CountsFlops(key.kernel)) return size / static_cast<double>(RowBytes(layer));
  return size / (2.0 * layer.expert_matrices * layer.model_dim * ExpertsOf(key, workload).hidden);
}

KernelBuffers BuffersOf(const KernelKey& key, double size, const Workload& workload) {
  const Layer& layer = workload.layer;
  const size_t row_bytes = RowBytes(layer);
  const bool products = CountsFlops(key.kernel);
  const executor::ExpertShard shard = ExpertsOf(key, workload);
  const double rows = RowsOf(key, size, workload);
  KernelBuffers buffers = {.experts = products ? shard.experts : layer.experts};
  buffers.rows_per_expert = std::max(1, static_cast<int>(std::llround(rows / buffers.experts)));
  buffers.rows = products || key.kernel == Kernel::kPermute ? buffers.rows_per_expert * buffers.experts
                                                            : std::max(1, static_cast<int>(std::llround(rows)));
  buffers.tokens = std::max(1, key.kernel == Kernel::kGate ? buffers.rows : buffers.rows / layer.top_k);
  buffers.slot_bytes = buffers.rows * row_bytes;
  // Codes are longer than the shortest rows.
  const double code_bytes = EncodedRowBytes(CodecOf(key.kernel), layer.model_dim, layer.bytes_per_element);
  buffers.output_bytes = buffers.rows * std::max(row_bytes, static_cast<size_t>(code_bytes));
  if (products && BuiltInLike(key.kernel) != Kernel::kExpertGemm) {
    buffers.hidden_bytes = static_cast<size_t>(buffers.rows) * (layer.expert_matrices - 1) * shard.hidden *
                           static_cast<size_t>(layer.bytes_per_element);
  }
  buffers.token_bytes = buffers.tokens * row_bytes;
  buffers.routing_bytes = executor::Routing::Bytes(static_cast<size_t>(buffers.tokens) * RoutingWidth(layer));
  buffers.sum_bytes = executor::RouterSums::Count(layer.experts) * sizeof(double);
  return buffers;
}

namespace {

// Operands and results of a kernel of the rest of a step.
double StepKernelBytes(const KernelKey& key, double size) {
  const KernelShape& shape = key.shape;
  const double element = key.bytes_per_element.value_or(2);
  if (IsLinear(key.kernel)) {
    constexpr double kFp32 = 4;
    const double in = shape.in_features, out = shape.out_features, rows = size / (2 * in * out);
    const double weights = shape.experts * in * out;
    return element * (rows * (in + out) + weights) +
           (key.kernel == Kernel::kLinearWeightGradient ? kFp32 * weights : 0);
  }
  if (IsAttention(key.kernel)) {
    const double dims = shape.query_key_dim + shape.value_dim;
    const double tokens = size / AttentionFlops(shape) * shape.sequence;
    // And as much again of gradients.
    return 2 * element * tokens * (shape.heads + shape.kv_heads) * dims;
  }
  // Adam holds weights, FP32 copies, gradients, both moments, and one of them twice for a while; it passes over more.
  constexpr double kHeldShare = 22.0 / 46;
  if (key.kernel == Kernel::kOptimizer) return kHeldShare * size;
  return key.kernel == Kernel::kHostLaunch ? 0 : size;
}

}  // namespace

double OperationBytes(const CostKey& key, double size, const Workload& workload) {
  if (const auto* collective = std::get_if<CollectiveKey>(&key)) {
    const CollectiveBuffers buffers = BuffersOf(*collective, size, /*group_rank=*/0);
    return 2.0 * buffers.bytes + buffers.gathered_bytes + buffers.scratch_bytes;
  }
  const auto& kernel = std::get<KernelKey>(key);
  if (IsOfTheRestOfAStep(kernel.kernel)) return StepKernelBytes(kernel, size);
  if (RowsOf(kernel, size, workload) > kMostRows) return std::numeric_limits<double>::infinity();
  const KernelBuffers buffers = BuffersOf(kernel, size, workload);
  return static_cast<double>(buffers.slot_bytes + buffers.output_bytes + 2 * buffers.hidden_bytes +
                             buffers.token_bytes + buffers.routing_bytes + buffers.sum_bytes);
}

}  // namespace moeplan::agent
