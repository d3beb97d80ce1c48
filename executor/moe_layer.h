// One MoE layer of a training job on one rank: runs the schedule of its plan, call after call.
//
// Make prepares everything: the graph, its buffers and events, the communicators. Calls then neither allocate device
// memory nor start threads; they block until the result is there, or an error is. Every rank of the stage makes the
// same layers and calls them in the same order. Layers of a rank share its runtime, and run one after the other.
//
// Where the job has a stream on the device (RankRuntime::SetJobStream), a call returns as soon as its work is queued
// behind that of the job's stream, which then waits for it; the next call waits until the one before is done. An error
// that is found by then is that of a later call. Calls of parts, whose counts the host carries, block. Layers of
// different lanes (rank_runtime.h) run beside each other.
//
// An error of the network (a lost peer, a missed deadline) spends the rank: all later calls answer it at once.
// One thread drives all layers of a rank.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "executor/runtime/rank_runtime.h"
#include "models/schedule/gradient_slices.h"
#include "models/schedule/knobs.h"
#include "models/timeline/task_timing.h"
#include "models/workload/workload.h"

namespace moeplan::executor {

// What runs and where: of a PlanAnswer the workload, and the knobs, the order and the gradients of one of its
// candidates, or all made by hand.
struct LayerPlan {
  Workload workload;  // Resolved or not. Its phase says whether the layer can run backward.
  Cluster cluster;
  Knobs knobs;
  std::vector<std::string> order;  // Of the candidate: how its tasks are launched. Empty: as the schedule says.
  GradientExchange gradients;      // Of the candidate, where the workload has gradient_bytes.
};

// The counts that a source batch in parts carries from part to part (GraphRunner::CarriedMemory).
struct RunningCounts {
  int tokens = 0;              // Those of the parts that ran.
  std::vector<int32_t> pairs;  // [blocks][E]: their pairs, dropped ones included; empty before the first part.
  Stream* writes = nullptr;    // Until it has passed, the pairs of the last part are not there (MoeLayer::AwaitCounts).
};

// kInvalidInput, naming the tensor, where weights do not have the shapes of a shard.
Status CheckWeights(const LayerWeightsView& weights, const Layer& layer, const LayerShard& shard);

class MoeLayer {
 public:
  // Collective; blocks. `rank`, `weights` and `gradients` are borrowed and must outlive the layer. `weights` are those
  // of ShardOf for rank.StageRank; the job may change their values between calls. `gradients`, in the shapes of
  // ZeroGradients, may be absent when the phase is FORWARD. Several layers may have the same weights and gradients,
  // such as one for each micro-batch under way. kInvalidInput, naming the field, when plan, job and weights do not
  // belong together; kInfeasible for a schedule that the layout rules out; kUnimplemented for a dropless layer
  // (executor/training_layer.h), and for a layer or codec that the rank's backend has no kernels for.
  static StatusOr<MoeLayer> Make(const LayerPlan& plan, RankRuntime& rank, const LayerWeightsView& weights,
                                 const LayerGradientsView& gradients = {});
  // The same with kernels whose weights and gradients are the job's affair, such as those of weights that stay on a
  // card (executor/cuda/cuda_kernels.h): of the plan's layer and of ShardOf for rank.StageRank.
  struct Options {
    // Then the plan is that of a part of such a source batch (GraphRunner::Prepare), and ForwardOfPart runs it.
    std::optional<WholeBatch> whole = std::nullopt;
    // Shared by layers of the plan that are made on a rank as it needs them; null: the layer's own.
    std::shared_ptr<ReplayAgreement> agreement = nullptr;
    // Calls run on this lane. Where that is not in line they return once their work is queued, and rows, weights and
    // gradients have to last until RankRuntime::Finish.
    Lane lane = Lane::kInLine;
  };
  static StatusOr<MoeLayer> Make(const LayerPlan& plan, RankRuntime& rank, std::unique_ptr<Kernels> kernels,
                                 const Options& options);

  // B·L rows of M elements each, of `bytes_per_element` bytes, alike on all ranks of an MP group; `input` and `output`
  // may be the same memory.
  Status Forward(std::span<const std::byte> input, std::span<std::byte> output);
  // The same behind the parts that `counts` has, to which it adds its own. Backward reads there how many pairs the
  // whole source batch has, where the load-balance loss counts: kInvalidInput before the last part ran forward.
  Status ForwardOfPart(std::span<const std::byte> input, std::span<std::byte> output,
                       std::shared_ptr<RunningCounts> counts);

  // Blocks until the counts of the last ForwardOfPart are there. On a lane that is not in line they come with its gate,
  // so that the next part can begin while this one's rows are on their way, and a pass is over only with both.
  Status AwaitCounts();

  // The same shapes. Goes back through the last Forward, once for each, and adds to `gradients` this rank's part of the
  // gradients of its expert weights: their sum over the ranks that hold the same shard is that of all source batches.
  // The router's losses, times the layer's coefficients, are part of the loss: of each source batch its own.
  // Of a plan whose phase is FORWARD: kInvalidInput.
  Status Backward(std::span<const std::byte> output_gradient, std::span<std::byte> input_gradient);

  // Backward in two halves: input_gradient and the gate's gradient at once, and those of the expert weights when
  // AddWeightGradients is called, once after each and before the next Forward. Ranks call halves in the same order.
  Status BackwardOfInput(std::span<const std::byte> output_gradient, std::span<std::byte> input_gradient);
  Status AddWeightGradients();

  // Where weights and gradients lie from the next call on, in the same shapes; what is absent stays where it is.
  // kInvalidInput, naming the tensor, and nothing changes, where a shape is another.
  Status UseMemory(const LayerWeightsView& weights, const LayerGradientsView& gradients);
  // The same where kernels use the device's memory in place (RankRuntime::MakeKernels).
  void UseMemory(const DeviceWeights& weights);
  void UseMemory(const DeviceGradients& gradients);

  // On a lane that is not in line: blocks until the experts have computed the gradients of their inputs in the last
  // backward pass, from where on its last exchanges are all that others wait for. Returns at once where the host does
  // not read the device's memory, as there the job's own work is only queued, too.
  Status AwaitExperts();

  // GateGradientValues, in device memory: the gradient of what the gate has after the last Backward, which overwrites
  // it. That of the own source batch, whole on every rank of the MP group. Empty where the plan's phase is FORWARD.
  std::span<const float> gate_gradient() const;
  // Adds it to `to`, in the memory of the host, or in that of the device where kernels use that in place: queued behind
  // the layer's last call, as that is.
  Status AddGateGradients(const GateGradientsView& to);

  // What the slices of the plan's gradients sum over the replicas of dense layers, in launch order, in device memory:
  // the job writes its own before Backward, which leaves their sums. Elements of bytes_per_element.
  std::vector<std::span<std::byte>> dense_gradients() { return runner_->dense_gradients(); }

  // Of the tokens that this rank answers for, in the last Forward.
  StatusOr<RouterStatistics> router_statistics() { return runner_->router_statistics(); }

  // The tasks of the last call of Forward (FORWARD), of Backward (BACKWARD), or of both (TRAINING), in seconds on the
  // device's clock, which ranks of one machine share. Empty before that call.
  Timeline LastTimeline(Phase phase) const;

  // With data_parallel filled in.
  const Workload& workload() const { return workload_; }

 private:
  MoeLayer(Workload workload, RankRuntime& rank, std::unique_ptr<Kernels> kernels, std::unique_ptr<GraphRunner> runner,
           const Options& options);

  bool trains() const { return workload_.phase != Phase::kForward; }
  // The rows of a pass: from the caller's into the graph's, and back.
  struct Rows {
    std::span<const std::byte> from;
    std::byte* in = nullptr;
    const std::byte* out = nullptr;
    std::span<std::byte> to;
  };
  struct Work {
    Rows rows;
    Rows counts;  // What a part carries; empty for a whole source batch.
    std::function<void()> enqueue;
    bool takes_weights = false, gives_gradients = false;
  };
  Status Run(const Work& work);
  Status RunForward(std::span<const std::byte> input, std::span<std::byte> output, const Rows& counts);
  // For a backward pass: what a part needs of its source batch.
  Rows BatchPairs();
  Status AwaitCounts(RunningCounts& counts) const;
  // Whether calls return while the lane's streams still read and write the host's counts.
  bool counts_are_queued() const;
  Status CheckBackward(std::span<const std::byte> output_gradient, std::span<std::byte> input_gradient) const;
  Status CheckRows(const char* name, size_t bytes) const;

  Workload workload_;
  RankRuntime* rank_;
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<GraphRunner> runner_;
  std::optional<WholeBatch> whole_;
  Lane lane_;
  std::optional<DeviceWeights> device_weights_;
  std::vector<DeviceGradients> device_gradients_;  // Those of the runner's places.
  int oldest_gradients_ = 0;
  std::shared_ptr<RunningCounts> counts_;  // Those of the last ForwardOfPart.
  std::vector<int32_t> given_counts_;      // What the last call takes in of them.
  bool forward_ran_ = false, backward_ran_ = false;
  bool backward_due_ = false;          // A Forward has no Backward yet.
  bool weight_gradients_due_ = false;  // Half a Backward has run.
};

}  // namespace moeplan::executor
