// What each kernel asks of a simulated GPU: the table of sim_kernels.h. Counts are read when a function is called.
// Pure.
#pragma once

#include <span>
#include <vector>

#include "executor/kernels.h"
#include "executor/virtual/virtual_machine.h"
#include "models/cluster/simulated_cluster.h"
#include "models/cost/operation.h"

namespace moeplan::executor {

// A kernel of the rest of a step (models/cost/operation.h) asks this of a GPU: products and attention at the GPU's
// efficiency, what moves memory at its rate, launches one after the other. Requires a validated key and a size above 0.
WorkSize StepKernelSize(const SimulatedGpu& gpu, const KernelKey& key, double size);

class KernelSizes {
 public:
  KernelSizes(const SimulatedGpu& gpu, const Layer& layer, const ExpertShard& experts, const ExpertShard& shared);

  WorkSize Gate(const TokenRows& tokens) const;
  WorkSize AssignSlots(const AssignSlotsArgs& args) const;
  // Rows of slots, each read and written.
  WorkSize Move(const CellLayout& slots) const;
  WorkSize Move(const CellLayout& in, std::span<const CellPair> pairs) const;
  // Rows of slots and of tokens, and `more` of the latter.
  WorkSize Merge(const CellLayout& slots, const TokenRows& tokens, int more) const;
  WorkSize Sum(const CellLayout& in, const CellLayout& out) const;
  WorkSize Code(Codec codec, const CellLayout& rows) const;
  // Of the experts whose cells are those of `pairs`, forward or back to their input.
  WorkSize Experts(const CellLayout& in, std::span<const std::vector<CellPair>> pairs) const;
  WorkSize ExpertWeightGradients(const CellLayout& in, std::span<const std::vector<CellPair>> pairs) const;
  WorkSize SharedExpert(const TokenRows& tokens) const;
  WorkSize SharedWeightGradient(const TokenRows& tokens) const;
  WorkSize GateGradient(const TokenRows& tokens) const;
  WorkSize SplitByNode(const SplitByNodeArgs& args) const;
  WorkSize RelayRouting(const RelayRoutingArgs& args) const;
  WorkSize SumOverNodes(const CellLayout& rows, const TokenRows& tokens) const;

 private:
  // An expert's part of a grouped GEMM.
  WorkSize Ffn(double rows, int hidden) const;
  WorkSize FfnWeightGradient(double rows, int hidden) const;
  double ElementBytes(double elements) const { return elements * layer_.bytes_per_element; }
  double RowBytes(double rows) const { return ElementBytes(rows * layer_.model_dim); }
  double GateBytes() const { return 4.0 * layer_.experts * layer_.model_dim; }

  const SimulatedGpu gpu_;
  const Layer layer_;
  const int hidden_, shared_hidden_;  // Columns of the shard.
};

}  // namespace moeplan::executor
