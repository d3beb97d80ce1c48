// One MoE layer of a training job on one rank, as a job has it: several forward passes under way before their backward
// passes, which come in any order (1F1B, two micro-batches), forward passes that nobody goes back through (evaluation,
// activation checkpointing), and fewer tokens in one call than in another.
//
// A source batch may also come in parts, one Forward for each of consecutive tokens (BatchInParts).
//
// A dropless layer (capacityFactor 0) sends every pair: each Forward first counts how many slots its experts need,
// which all ranks of the stage agree on (executor/pair_counter.h), and runs with as many.
//
// Two micro-batches may run beside each other, each on a lane (rank_runtime.h): its Forward and the calls of its Pass
// then return once they are queued, and Pass::Finish awaits the last.
//
// Every pass under way has the buffers of a MoeLayer of its own, which later passes of as many tokens use again; those
// of the four sizes that came last are kept for each lane, and of eight sizes of parts or of a dropless layer. Every
// rank of the job makes the same layers, every rank of a pipeline stage calls them in the same order with as many
// tokens, and stages need not keep step. Calls block as those of MoeLayer do, whose errors they give. One thread at a
// time drives all layers of a rank.
#pragma once

#include <array>
#include <compare>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "executor/moe_layer.h"
#include "executor/pair_counter.h"

namespace moeplan::executor {

class TrainingLayer;

// One source batch that a layer runs in parts: each Forward takes the next of its tokens, in order, on every rank the
// same. Outputs, dropped pairs, input and weight gradients (added up over the parts; those of the router's losses, too)
// and sums of statistics are those of the whole source batch in one Forward, rounding aside. The capacity is that of
// all its tokens; how many pairs have chosen each expert is carried from a part to the next. Parts are passes like
// others: several may be under way, and they go back in any order; where auxLossCoefficient is not 0, none before the
// last part ran forward, since the load-balance loss is about the pairs of the whole source batch.
//
// A part sends the slots that were counted for it, at most min(T, its tokens) of each expert; in PARM_S1 and
// ONCE_PER_NODE those alone that its tokens take, sizes first. A Forward that fails leaves nothing to go on with. One
// thread at a time, that of the layer.
class BatchInParts {
 public:
  // `tokens`: of all parts together.
  explicit BatchInParts(int tokens) : tokens_(tokens) {}
  int tokens() const { return tokens_; }
  int tokens_left() const { return tokens_ - counts_->tokens; }

 private:
  friend class TrainingLayer;
  int tokens_;
  const TrainingLayer* layer_ = nullptr;  // Which ran the first part.
  // Passes read it after the batch is gone.
  std::shared_ptr<RunningCounts> counts_ = std::make_shared<RunningCounts>();
};

class TrainingLayer {
  // Buffers are made for a number of tokens; where those are a part, also for the tokens of their source batch, else 0;
  // for the slots that were counted, 0 where none were; for weights in one kind of memory; and for
  // the streams of one lane.
  struct Size {
    int tokens = 0, batch_tokens = 0, slots = 0;
    bool on_device = false;
    Lane lane = Lane::kInLine;
    bool is_usual() const { return batch_tokens == 0 && slots == 0; }
    friend auto operator<=>(const Size&, const Size&) = default;
  };

 public:
  // A forward pass under way. Going, it leaves its buffers to later passes; the layer must outlive it.
  class Pass {
   public:
    Pass(Pass&&) = default;
    Pass& operator=(Pass&&) = delete;
    ~Pass();

    // As MoeLayer's, with the weights of this pass's Forward. What they add up is added to `gradients`, in the shapes
    // of ZeroGradients; `gate_gradients` get added the gate's.
    Status Backward(std::span<const std::byte> output_gradient, std::span<std::byte> input_gradient,
                    const GradientsMemory& gradients, const GateGradientsView& gate_gradients);
    Status BackwardOfInput(std::span<const std::byte> output_gradient, std::span<std::byte> input_gradient,
                           const GateGradientsView& gate_gradients);
    Status AddWeightGradients(const GradientsMemory& gradients);

    // Within a backward pass that is queued on a lane: MoeLayer::AwaitExperts.
    Status AwaitExperts() { return queued_ ? layer_->AwaitExperts() : OkStatus(); }

    // Returns once the job may use what the last call has left queued (RankRuntime::Finish), and at once where that is
    // in line. Rows, weights and gradients have to last until then, or until the pass goes.
    Status Finish();

    StatusOr<RouterStatistics> router_statistics() { return layer_->router_statistics(); }
    // When this pass's tasks ran, as MoeLayer::LastTimeline.
    Timeline LastTimeline(Phase phase) const { return layer_->LastTimeline(phase); }

   private:
    friend class TrainingLayer;
    Pass(TrainingLayer& owner, Size size, std::unique_ptr<MoeLayer> layer)
        : owner_(&owner), size_(size), layer_(std::move(layer)) {}
    Status UseMemory(const GradientsMemory& gradients);

    TrainingLayer* owner_;
    Size size_;
    std::unique_ptr<MoeLayer> layer_;  // Null once moved from.
    bool queued_ = false;              // A call is to be finished.
  };

  // Collective; blocks. Both passes can be run whatever the phase of the plan's workload: tasks of a pass that the
  // plan's order leaves out have the order of the schedule. What the workload says of
  // the search (min_chunk_bytes, max_chunks, max_partition_degree) limits nothing here, and dense gradients are the
  // job's own affair.
  // Errors are those of MoeLayer::Make, and kInvalidInput on every rank, naming the first field that differs and a
  // rank, where ranks have different plans.
  // A rank that has no plan says why instead, and all ranks get an error.
  static StatusOr<std::unique_ptr<TrainingLayer>> Make(const StatusOr<LayerPlan>& plan, RankRuntime& rank);

  // `input`: `tokens` rows of M elements, at least 1 and at most B·L; `output` gets as many, and may be the same
  // memory. Capacity is that of so many tokens; a plan with more chunks than their slots have room for runs with fewer.
  // A dropless layer: kInvalidInput on every rank, naming one and its rows, where layer.receiveFactor is exceeded; the
  // job can go on.
  // The memory of `weights`, which are those of ShardOf for rank.StageRank, must last as long as the pass. Where it is
  // the device's, rows and gradients are, too, and calls return once queued where MoeLayer's do; counting blocks.
  // The first call of a `lane` is collective over the pipeline stage and blocks, too.
  StatusOr<Pass> Forward(int tokens, std::span<const std::byte> input, std::span<std::byte> output,
                         const WeightsMemory& weights, Lane lane = Lane::kInLine);
  // The same of the next `tokens` tokens of `batch`. kInvalidInput, naming the field, also where the gate looks at the
  // whole source batch (BATCH_PRIORITIZED, EXPERT_CHOICE) or slices have fixed shares of the slots (PARM_S1, PADDED).
  StatusOr<Pass> Forward(int tokens, std::span<const std::byte> input, std::span<std::byte> output,
                         const WeightsMemory& weights, BatchInParts& batch, Lane lane = Lane::kInLine);

  // Resolved.
  const Workload& workload() const { return plan_.workload; }
  // What the rank holds of the experts.
  const LayerShard& shard() const { return shard_; }
  // Whether the ranks of an MP group each gate a slice of their source batch, and answer for that alone.
  bool gates_slices() const { return gates_slices_; }

 private:
  TrainingLayer(LayerPlan plan, const TaskGraph& graph, RankRuntime& rank);

  static constexpr int kMostUsual = 4, kMostOthers = 8;
  // Notes that the size came last, and drops what is idle of the one of its kind that came longest ago.
  void Remember(Size size);
  void TakeBack(Size size, std::unique_ptr<MoeLayer> layer);
  // Makes what the layer needs of a lane.
  Status Open(Lane lane);
  StatusOr<std::unique_ptr<MoeLayer>> LayerFor(Size size, const WeightsMemory& weights);
  // Tells the kernels of a pass where its weights are.
  static Status UseMemory(MoeLayer& layer, const WeightsMemory& weights);
  // Counts the slots that each expert needs in a call of a dropless layer, or for a part. Collective over the stage.
  StatusOr<int> CountedSlots(const PairCounter::Call& call, std::span<const std::byte> input,
                             const WeightsMemory& weights);
  LayerPlan PlanFor(Size size, std::optional<WholeBatch>& whole) const;
  // Whether counts go ahead of the rows of a part, and the rows alone that take slots are sent.
  bool PartsSendRowsAlone() const;
  Status CheckPart(int tokens, const BatchInParts& batch) const;
  int MostTokens() const;

  LayerPlan plan_;
  RankRuntime* rank_;
  LayerShard shard_;
  bool gates_slices_;
  std::array<bool, kLanes> open_ = {};
  std::optional<PairCounter> counter_;  // Absent before a layer that drops pairs gets its first part.
  // What it counts with, where weights are the host's and where they are the device's; null before the first Forward.
  std::array<std::unique_ptr<Kernels>, 2> gate_kernels_;
  // What the ranks have agreed on by size: ranks free passes when they like, and so make buffers when others do not.
  std::map<Size, std::shared_ptr<ReplayAgreement>> agreements_;
  std::vector<Size> recent_;                                     // The last first.
  std::map<Size, std::vector<std::unique_ptr<MoeLayer>>> idle_;  // Only sizes of recent_.
};

}  // namespace moeplan::executor
