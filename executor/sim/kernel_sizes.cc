#include "executor/sim/kernel_sizes.h"

#include <algorithm>

#include "executor/sim/gemm_time.h"
#include "models/workload/codec.h"

namespace moeplan::executor {
namespace {

constexpr int kFfnLaunches = 2;
// Of a pair's expert, slot and weight.
constexpr double kPairBytes = 12;

double RowsOf(const CellLayout& cells) {
  int64_t rows = 0;
  for (int block = 0; block < cells.blocks; ++block) rows += RowsOfBlock(cells, block);
  return static_cast<double>(rows);
}

double RowsOf(const CellLayout& cells, std::span<const CellPair> pairs) {
  int64_t rows = 0;
  for (const CellPair& pair : pairs) rows += RowsOfCell(cells, pair.from);
  return static_cast<double>(rows);
}

double RowsOf(const TokenRows& tokens) { return static_cast<double>(tokens.blocks) * tokens.valid_rows; }

WorkSize& operator+=(WorkSize& sum, const WorkSize& part) {
  sum.compute_s += part.compute_s;
  sum.memory_bytes += part.memory_bytes;
  return sum;
}

// Every expert has an equal share of the rows.
double ProductS(const SimulatedGpu& gpu, const KernelKey& key, double size) {
  const double in = key.shape.in_features, out = key.shape.out_features, experts = key.shape.experts;
  const double rows = size / (2 * experts * in * out);
  switch (key.kernel) {
    case Kernel::kLinear: return experts * GemmS(gpu, rows, out, in);
    case Kernel::kLinearInputGradient: return experts * GemmS(gpu, rows, in, out);
    default: return experts * GemmS(gpu, in, out, rows);
  }
}

// Scores and values, of the half that the mask leaves; backward, five products for two.
double AttentionS(const SimulatedGpu& gpu, const KernelKey& key, double size) {
  const KernelShape& shape = key.shape;
  const double passes = key.kernel == Kernel::kAttentionGradient ? 2.5 : 1;
  const double sequence = shape.sequence, batch = size / AttentionFlops(shape);
  const double whole =
      AttentionFlops(shape) / (2 * sequence * sequence * shape.heads * (shape.query_key_dim + shape.value_dim));
  const double scores_s = GemmS(gpu, sequence, sequence, shape.query_key_dim);
  const double values_s = GemmS(gpu, sequence, shape.value_dim, sequence);
  return passes * batch * shape.heads * whole * (scores_s + values_s) / 2;
}

}  // namespace

WorkSize StepKernelSize(const SimulatedGpu& gpu, const KernelKey& key, double size) {
  if (IsLinear(key.kernel)) return {.compute_s = ProductS(gpu, key, size)};
  if (IsAttention(key.kernel)) return {.compute_s = AttentionS(gpu, key, size)};
  if (key.kernel == Kernel::kHostLaunch) return {.launches = static_cast<int>(std::min(size, 1e9))};
  return {.memory_bytes = size};
}

KernelSizes::KernelSizes(const SimulatedGpu& gpu, const Layer& layer, const ExpertShard& experts,
                         const ExpertShard& shared)
    : gpu_(gpu), layer_(layer), hidden_(experts.hidden), shared_hidden_(shared.hidden) {}

WorkSize KernelSizes::Gate(const TokenRows& tokens) const {
  const double rows = RowsOf(tokens);
  return {.launches = 2,
          .compute_s = GemmS(gpu_, rows, layer_.experts, layer_.model_dim),
          .memory_bytes =
              RowBytes(rows) + GateBytes() + 4 * rows * layer_.experts + kPairBytes * rows * RoutingWidth(layer_)};
}

WorkSize KernelSizes::AssignSlots(const AssignSlotsArgs& args) const {
  const double counts = static_cast<double>(args.own_slice + 1 + args.units.chunks) * layer_.experts;
  return {.memory_bytes = kPairBytes * RowsOf(args.tokens) * RoutingWidth(layer_) + 4 * counts};
}

WorkSize KernelSizes::Move(const CellLayout& slots) const { return {.memory_bytes = 2 * RowBytes(RowsOf(slots))}; }

WorkSize KernelSizes::Move(const CellLayout& in, std::span<const CellPair> pairs) const {
  return {.memory_bytes = 2 * RowBytes(RowsOf(in, pairs))};
}

WorkSize KernelSizes::Merge(const CellLayout& slots, const TokenRows& tokens, int more) const {
  const double rows = RowsOf(tokens);
  // Slots that no token has are not read.
  const double slot_rows = std::min(RowsOf(slots), rows * RoutingWidth(layer_));
  return {.memory_bytes = RowBytes(slot_rows + rows * (1 + more)) + kPairBytes * rows * RoutingWidth(layer_)};
}

WorkSize KernelSizes::Sum(const CellLayout& in, const CellLayout& out) const {
  return {.memory_bytes = RowBytes(RowsOf(in) + RowsOf(out))};
}

WorkSize KernelSizes::Code(Codec codec, const CellLayout& cells) const {
  const double rows = RowsOf(cells);
  return {.memory_bytes = RowBytes(rows) + rows * EncodedRowBytes(codec, layer_.model_dim, layer_.bytes_per_element)};
}

WorkSize KernelSizes::Experts(const CellLayout& in, std::span<const std::vector<CellPair>> pairs) const {
  WorkSize all = {.launches = kFfnLaunches};
  for (const std::vector<CellPair>& of_expert : pairs) all += Ffn(RowsOf(in, of_expert), hidden_);
  return all;
}

WorkSize KernelSizes::ExpertWeightGradients(const CellLayout& in, std::span<const std::vector<CellPair>> pairs) const {
  WorkSize all = {.launches = kFfnLaunches};
  for (const std::vector<CellPair>& of_expert : pairs) all += FfnWeightGradient(RowsOf(in, of_expert), hidden_);
  return all;
}

WorkSize KernelSizes::SharedExpert(const TokenRows& tokens) const {
  WorkSize all = {.launches = kFfnLaunches};
  return all += Ffn(tokens.valid_rows, shared_hidden_);
}

WorkSize KernelSizes::SharedWeightGradient(const TokenRows& tokens) const {
  WorkSize all = {.launches = kFfnLaunches};
  return all += FfnWeightGradient(tokens.valid_rows, shared_hidden_);
}

WorkSize KernelSizes::GateGradient(const TokenRows& tokens) const {
  const double rows = tokens.valid_rows, experts = layer_.experts, model = layer_.model_dim;
  return {.launches = 2,
          .compute_s =
              GemmS(gpu_, rows, experts, model) + GemmS(gpu_, rows, model, experts) + GemmS(gpu_, experts, model, rows),
          .memory_bytes = 4 * RowBytes(rows) + 2 * GateBytes()};
}

WorkSize KernelSizes::SplitByNode(const SplitByNodeArgs& args) const {
  return {.memory_bytes = 2 * kPairBytes * RowsOf(args.tokens) * RoutingWidth(layer_)};
}

WorkSize KernelSizes::RelayRouting(const RelayRoutingArgs& args) const {
  return {.memory_bytes = 2 * kPairBytes * args.nodes * args.rows_per_node * RoutingWidth(layer_)};
}

WorkSize KernelSizes::SumOverNodes(const CellLayout& rows, const TokenRows& tokens) const {
  const double values = (RowsOf(rows) + RowsOf(tokens)) * RoutingWidth(layer_);
  return {.memory_bytes = sizeof(float) * values + kPairBytes * RowsOf(tokens) * RoutingWidth(layer_)};
}

WorkSize KernelSizes::Ffn(double rows, int hidden) const {
  if (rows == 0) return {};
  const double model = layer_.model_dim, kept = (layer_.expert_matrices - 1.0) * hidden;
  return {.compute_s = GemmS(gpu_, rows, kept, model) + GemmS(gpu_, rows, model, hidden),
          .memory_bytes = ElementBytes(layer_.expert_matrices * model * hidden) + 2 * RowBytes(rows) +
                          2 * ElementBytes(rows * kept)};
}

WorkSize KernelSizes::FfnWeightGradient(double rows, int hidden) const {
  if (rows == 0) return {};
  const double model = layer_.model_dim, kept = (layer_.expert_matrices - 1.0) * hidden;
  return {.compute_s = GemmS(gpu_, model, kept, rows) + GemmS(gpu_, hidden, model, rows),
          .memory_bytes =
              2 * RowBytes(rows) + 2 * ElementBytes(rows * kept) + 2 * 4 * layer_.expert_matrices * model * hidden};
}

}  // namespace moeplan::executor
