// Says what one instruction of a model's graph does, and what that takes: a part of a transformer's block, a kernel of
// the MoE layer, or an exchange, priced as `layout` and `step` price it (planner/layout/cost_book.h).
//
// Seconds, bytes, flops. A StepCosts is for one thread.
#pragma once

#include <optional>
#include <vector>

#include "models/cost/profile.h"
#include "models/layout/layout_answer.h"
#include "models/routing/part_rows.h"
#include "models/step/layer_work.h"
#include "models/timeline/pricer.h"
#include "models/training/training_graph.h"
#include "planner/layout/cost_book.h"
#include "planner/layout/dispatch_cost.h"

namespace moeplan::planner {

// Names a pass over an instruction: forward, or to one of its two gradients where it has weights. An instruction
// without weights has the first alone.
enum class Side { kForward, kInputGradient, kWeightGradient };

// Says what ranks exchange on the way forward and on the way back: a collective, or nothing, and the tensor is passed
// on as it is. Bytes are counted as nccl-tests counts them, so they are the same for an exchange and its reverse unless
// one of both is of another precision.
struct Exchange {
  std::optional<InstructionOp> forward, backward;
  GroupShape group;
  double bytes = 0;
  std::optional<double> backward_bytes;
  // A dispatcher that sends a row once to a node is priced as the all-to-all in its place, of so many bytes
  // (planner/layout/dispatch_cost.h).
  std::optional<double> all_to_all_bytes;
  int stride = 0;  // How far apart neighbours of the group are in rank order; 0: not told.
  // It is cut into so many, with the product in front of it or behind it (planner/lancet/graph/ring_pieces.h).
  int pieces = 1;
  // Bytes of the gradient of what it returns, and of the gradient that it passes on; absent: those of the tensor.
  std::optional<double> output_gradient_bytes, input_gradient_bytes;
  std::optional<StreamKind> stream;  // Absent: StreamOf's.
  // Whether what was exchanged is not kept for the way back, so that the forward collective runs once more there.
  bool again = false;
  // Whether it is with another pipeline stage. On a way without a collective what came before is there in no time.
  bool between_stages = false;

  bool passes_on(std::optional<InstructionOp> collective) const { return !collective && !between_stages; }
  std::optional<InstructionOp> OpOn(Side side) const { return side == Side::kForward ? forward : backward; }
  double BytesOn(Side side) const { return side == Side::kForward ? bytes : backward_bytes.value_or(bytes); }
};

// Says what an instruction does: a part of a transformer's block, a kernel of the MoE layer, or an exchange.
struct StepWork {
  BlockWork block;
  std::optional<Kernel> kernel;  // GATE, PERMUTE or EXPERT_GEMM, on so much as the kernel counts.
  double kernel_size = 0;
  std::optional<double> input_gradient_size;  // The kernel counts so much on the way to that; absent: kernel_size.
  std::optional<Exchange> exchange;
  // Rows that come back from ranks which share experts are summed, by PERMUTE on so many bytes, on one of both ways.
  double shards_bytes = 0;
  Side shards_side = Side::kForward;

  double SizeOn(Side side) const {
    return side == Side::kInputGradient ? input_gradient_size.value_or(kernel_size) : kernel_size;
  }
};

// The sizes that the costs of a graph depend on.
struct StepSizes {
  Layer layer;    // The routed experts' layer, without the shared expert, which is an instruction of its own.
  Layout layout;  // Tensor, expert, expert sharding and context parallelism.
  // Nothing is dropped: all that the layer's capacity factor tells is how many rows the experts' ranks have.
  bool dropless = false;
  int bytes_per_element = 2;
  int gradient_bytes = 4;
  Precision precision = Precision::kBf16;
  Dispatching dispatching;
};

class StepCosts {
 public:
  // `profile` is borrowed.
  StepCosts(const StepSizes& sizes, const Profile& profile);

  // One pass over a share of the work.
  double TimeS(const StepWork& work, double share, Side side);
  // Lists the kernels that the work consists of, one after another.
  std::vector<Work> KernelsOf(const StepWork& work, Side side);
  double ExchangeS(const Exchange& exchange, double share, Side side);
  double CollectiveS(InstructionOp op, const GroupShape& group, double bytes, int stride = 0);
  // The step over the parameters of a rank, whose states are cut over so many ranks.
  StepWork Optimizer(double dense, int dense_shards, double experts, int expert_shards) const;

  Workload workload() const;
  // Says how many rows the busiest rank has of a part of the batch.
  const PartRows& rows() const { return rows_; }
  // kNotFound: something that was asked for was not measured, with the command that measures it.
  Status Missing() const;
  PriceNotes notes() const;

 private:
  const StepSizes sizes_;
  CostBook book_;
  Profile of_layer_;
  Pricer pricer_;
  const PartRows rows_;
};

}  // namespace moeplan::planner
