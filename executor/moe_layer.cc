#include "executor/moe_layer.h"

#include <algorithm>
#include <functional>

#include "executor/errors.h"
#include "models/check.h"
#include "models/plan/build_plan.h"

namespace moeplan::executor {
namespace {

// Tensors of one kind by name, such as "weights.experts.up", and the sizes that a shard gives them.
struct TensorSize {
  const char* name;
  size_t found, expected;
};

template <typename Tensors>
std::vector<TensorSize> SizesOfTensors(const Tensors& tensors, const Layer& layer, const ExpertShard& shard) {
  const ExpertTensorSizes expected = TensorSizesOf(layer, shard);
  return {{"up", tensors.up.size(), expected.up},
          {"gate_up", tensors.gate_up.size(), expected.gate_up},
          {"down", tensors.down.size(), expected.down},
          {"up_bias", tensors.up_bias.size(), expected.up_bias},
          {"gate_up_bias", tensors.gate_up_bias.size(), expected.gate_up_bias},
          {"down_bias", tensors.down_bias.size(), expected.down_bias}};
}

template <typename Tensors>
Status CheckTensors(const std::string& path, const Tensors& tensors, const Layer& layer, const ExpertShard& shard) {
  for (const TensorSize& tensor : SizesOfTensors(tensors, layer, shard)) {
    if (tensor.found != tensor.expected)
      return error::WrongSize(StrCat(path, ".", tensor.name), tensor.found, tensor.expected);
  }
  return OkStatus();
}

Status CheckGradients(const LayerGradientsView& gradients, const Layer& layer, const LayerShard& shard) {
  if (!gradients.given) return error::NoGradients();
  RETURN_IF_ERROR(CheckTensors("gradients.experts", gradients.experts, layer, shard.experts));
  return CheckTensors("gradients.shared", gradients.shared, layer, shard.shared);
}

// The plan for the job that `rank` is part of, with its workload resolved.
struct DrawnPlan {
  Workload workload;
  TaskGraph graph;
};
StatusOr<DrawnPlan> Draw(const LayerPlan& plan, RankRuntime& rank) {
  DrawnPlan drawn;
  ASSIGN_OR_RETURN(drawn.workload, ResolveWorkload(plan.workload, plan.cluster));
  const Layer& layer = drawn.workload.layer;
  if (IsDropless(layer) && layer.counted_slots == 0) return error::NeedsSizes();
  if (Ranks(plan.cluster) != rank.world().size()) return error::WrongRanks(Ranks(plan.cluster), rank.world().size());
  const Plan candidate = {.knobs = plan.knobs, .order = plan.order, .gradients = plan.gradients};
  ASSIGN_OR_RETURN(drawn.graph, BuildPlan(candidate, drawn.workload, plan.cluster));
  return drawn;
}

StatusOr<std::unique_ptr<GraphRunner>> PrepareOn(RankRuntime& rank, const TaskGraph& graph, Kernels& kernels,
                                                 const MoeLayer::Options& options) {
  ASSIGN_OR_RETURN(const RankContext context,
                   rank.ContextOf(graph.layout, kernels, graph.communication_ctas, options.lane));
  return GraphRunner::Prepare(graph, context, options.whole, options.agreement);
}

template <typename Value>
std::span<std::byte> BytesOf(std::vector<Value>& values) {
  return std::as_writable_bytes(std::span(values));
}

}  // namespace

Status CheckWeights(const LayerWeightsView& weights, const Layer& layer, const LayerShard& shard) {
  const size_t gate = static_cast<size_t>(layer.experts) * layer.model_dim;
  const size_t biases = layer.router.bias ? layer.experts : 0;
  const size_t corrections = layer.router.correction_bias ? layer.experts : 0;
  if (weights.gate.size() != gate) return error::WrongSize("weights.gate", weights.gate.size(), gate);
  if (weights.gate_bias.size() != biases) {
    return error::WrongSize("weights.gate_bias", weights.gate_bias.size(), biases);
  }
  if (weights.correction_bias.size() != corrections) {
    return error::WrongSize("weights.correction_bias", weights.correction_bias.size(), corrections);
  }
  if (weights.experts.shard != shard.experts) return error::WrongShard("weights.experts");
  if (weights.shared.shard != shard.shared) return error::WrongShard("weights.shared");
  RETURN_IF_ERROR(CheckTensors("weights.experts", weights.experts, layer, shard.experts));
  return CheckTensors("weights.shared", weights.shared, layer, shard.shared);
}

StatusOr<MoeLayer> MoeLayer::Make(const LayerPlan& plan, RankRuntime& rank, const LayerWeightsView& weights,
                                  const LayerGradientsView& gradients) {
  ASSIGN_OR_RETURN(DrawnPlan drawn, Draw(plan, rank));
  const Workload& workload = drawn.workload;
  const LayerShard shard = ShardOf(workload.layer, workload.layout, rank.StageRank(workload.layout));
  RETURN_IF_ERROR(CheckWeights(weights, workload.layer, shard));
  if (workload.phase != Phase::kForward) RETURN_IF_ERROR(CheckGradients(gradients, workload.layer, shard));
  ASSIGN_OR_RETURN(std::unique_ptr<Kernels> kernels, rank.make_kernels()(workload.layer, weights, gradients));
  ASSIGN_OR_RETURN(std::unique_ptr<GraphRunner> runner, PrepareOn(rank, drawn.graph, *kernels, {}));
  return MoeLayer(std::move(drawn.workload), rank, std::move(kernels), std::move(runner), {});
}

StatusOr<MoeLayer> MoeLayer::Make(const LayerPlan& plan, RankRuntime& rank, std::unique_ptr<Kernels> kernels,
                                  const Options& options) {
  ASSIGN_OR_RETURN(DrawnPlan drawn, Draw(plan, rank));
  ASSIGN_OR_RETURN(std::unique_ptr<GraphRunner> runner, PrepareOn(rank, drawn.graph, *kernels, options));
  return MoeLayer(std::move(drawn.workload), rank, std::move(kernels), std::move(runner), options);
}

MoeLayer::MoeLayer(Workload workload, RankRuntime& rank, std::unique_ptr<Kernels> kernels,
                   std::unique_ptr<GraphRunner> runner, const Options& options)
    : workload_(std::move(workload)),
      rank_(&rank),
      kernels_(std::move(kernels)),
      runner_(std::move(runner)),
      whole_(options.whole),
      lane_(options.lane) {}

Status MoeLayer::Forward(std::span<const std::byte> input, std::span<std::byte> output) {
  MOEPLAN_CHECK(!whole_);
  return RunForward(input, output, {});
}

Status MoeLayer::ForwardOfPart(std::span<const std::byte> input, std::span<std::byte> output,
                               std::shared_ptr<RunningCounts> counts) {
  MOEPLAN_CHECK(whole_.has_value());
  RETURN_IF_ERROR(AwaitCounts(*counts));
  const GraphRunner::CarriedMemory memory = runner_->carried();
  std::vector<int32_t> now(static_cast<size_t>(memory.blocks) * workload_.layer.experts);
  given_counts_ = counts->pairs;
  given_counts_.resize(now.size());
  given_counts_.push_back(counts->tokens);
  counts_ = std::move(counts);
  if (!counts_are_queued()) {
    RETURN_IF_ERROR(RunForward(input, output, {BytesOf(given_counts_), memory.earlier, memory.now, BytesOf(now)}));
    counts_->pairs = std::move(now);
  } else {
    counts_->pairs = std::move(now);
    RETURN_IF_ERROR(RunForward(input, output, {.from = BytesOf(given_counts_), .in = memory.earlier, .to = {}}));
    Stream& awaited = rank_->streams(lane_).awaited();
    runner_->HoldForCounts(awaited);
    rank_->device().Copy(BytesOf(counts_->pairs).data(), memory.now, BytesOf(counts_->pairs).size(), awaited);
    counts_->writes = &awaited;
  }
  counts_->tokens += static_cast<int>(SizesOf(workload_.layer, workload_.layout).tokens);
  return OkStatus();
}

Status MoeLayer::AwaitCounts() { return counts_ == nullptr ? OkStatus() : AwaitCounts(*counts_); }

Status MoeLayer::AwaitCounts(RunningCounts& counts) const {
  Stream* const writes = std::exchange(counts.writes, nullptr);
  return writes == nullptr ? OkStatus() : rank_->device().Await(*writes);
}

bool MoeLayer::counts_are_queued() const { return lane_ != Lane::kInLine && rank_->device().host_reads_memory(); }

Status MoeLayer::RunForward(std::span<const std::byte> input, std::span<std::byte> output, const Rows& counts) {
  RETURN_IF_ERROR(CheckRows("input", input.size()));
  RETURN_IF_ERROR(CheckRows("output", output.size()));
  backward_due_ = weight_gradients_due_ = false;
  forward_ran_ = backward_ran_ = false;
  RETURN_IF_ERROR(Run({.rows = {input, runner_->input(), runner_->output(), output},
                       .counts = counts,
                       .enqueue = [this] { runner_->Enqueue(Phase::kForward); },
                       .takes_weights = true}));
  forward_ran_ = backward_due_ = true;
  return OkStatus();
}

Status MoeLayer::Backward(std::span<const std::byte> output_gradient, std::span<std::byte> input_gradient) {
  RETURN_IF_ERROR(CheckBackward(output_gradient, input_gradient));
  backward_due_ = false;
  RETURN_IF_ERROR(Run({.rows = {output_gradient, runner_->output_gradient(), runner_->input_gradient(), input_gradient},
                       .counts = BatchPairs(),
                       .enqueue = [this] { runner_->Enqueue(Phase::kBackward); },
                       .gives_gradients = true}));
  backward_ran_ = true;
  return OkStatus();
}

Status MoeLayer::BackwardOfInput(std::span<const std::byte> output_gradient, std::span<std::byte> input_gradient) {
  RETURN_IF_ERROR(CheckBackward(output_gradient, input_gradient));
  backward_due_ = backward_ran_ = false;
  RETURN_IF_ERROR(Run({.rows = {output_gradient, runner_->output_gradient(), runner_->input_gradient(), input_gradient},
                       .counts = BatchPairs(),
                       .enqueue = [this] { runner_->Enqueue(BackwardHalf::kInputGradients); }}));
  weight_gradients_due_ = true;
  return OkStatus();
}

Status MoeLayer::AddWeightGradients() {
  if (!weight_gradients_due_) return error::NoWeightGradients();
  weight_gradients_due_ = false;
  RETURN_IF_ERROR(
      Run({.enqueue = [this] { runner_->Enqueue(BackwardHalf::kWeightGradients); }, .gives_gradients = true}));
  backward_ran_ = true;
  return OkStatus();
}

Status MoeLayer::AwaitExperts() {
  Device& device = rank_->device();
  if (lane_ == Lane::kInLine || !device.host_reads_memory()) return OkStatus();
  Stream& awaited = rank_->streams(lane_).awaited();
  runner_->HoldForExperts(awaited);
  return device.Await(awaited);
}

Status MoeLayer::UseMemory(const LayerWeightsView& weights, const LayerGradientsView& gradients) {
  const LayerShard shard = ShardOf(workload_.layer, workload_.layout, rank_->StageRank(workload_.layout));
  if (!weights.gate.empty()) RETURN_IF_ERROR(CheckWeights(weights, workload_.layer, shard));
  if (gradients.given) RETURN_IF_ERROR(CheckGradients(gradients, workload_.layer, shard));
  kernels_->UseHostMemory(weights, gradients);
  return OkStatus();
}

void MoeLayer::UseMemory(const DeviceWeights& weights) {
  if (device_weights_ == weights) return;
  device_weights_ = weights;
  kernels_->UseDeviceMemory(weights);
  runner_->RecordAnew(Phase::kForward, 0);
  for (int place = 0; place < GraphRunner::kGradientPlaces; ++place) runner_->RecordAnew(Phase::kBackward, place);
}

void MoeLayer::UseMemory(const DeviceGradients& gradients) {
  kernels_->UseDeviceMemory(gradients);
  auto found = std::ranges::find(device_gradients_, gradients);
  if (found == device_gradients_.end()) {
    if (device_gradients_.size() == GraphRunner::kGradientPlaces) {
      found = device_gradients_.begin() + oldest_gradients_;
      *found = gradients;
      oldest_gradients_ = (oldest_gradients_ + 1) % GraphRunner::kGradientPlaces;
      runner_->RecordAnew(Phase::kBackward, static_cast<int>(found - device_gradients_.begin()));
    } else {
      found = device_gradients_.insert(device_gradients_.end(), gradients);
    }
  }
  runner_->UseGradientPlace(static_cast<int>(found - device_gradients_.begin()));
}

MoeLayer::Rows MoeLayer::BatchPairs() {
  if (!whole_) return {};
  const GraphRunner::CarriedMemory memory = runner_->carried();
  const size_t experts = workload_.layer.experts;
  const auto own = counts_->pairs.begin() + memory.own_block * experts;
  given_counts_.assign(own, own + experts);
  return {.from = BytesOf(given_counts_), .in = memory.batch_pairs, .to = {}};
}

std::span<const float> MoeLayer::gate_gradient() const {
  if (!trains()) return {};
  return {runner_->gate_gradient(), GateGradientValues(workload_.layer)};
}

Status MoeLayer::AddGateGradients(const GateGradientsView& to) {
  const std::span<const float> found = gate_gradient();
  const size_t biases = workload_.layer.router.bias ? workload_.layer.experts : 0, weights = found.size() - biases;
  if (to.weight.size() != weights) return error::WrongSize("gate_gradients.weight", to.weight.size(), weights);
  if (to.bias.size() != biases) return error::WrongSize("gate_gradients.bias", to.bias.size(), biases);
  Device& device = rank_->device();
  Stream& compute = rank_->streams(lane_)[StreamKind::kCompute];
  device.Label(compute, "gate gradient");
  if (device_weights_ || device.host_reads_memory()) {
    RETURN_IF_ERROR(rank_->FollowJob(lane_));
    kernels_->AddValues(found.data(), static_cast<int64_t>(weights), to.weight.data(), compute);
    if (biases > 0) {
      kernels_->AddValues(found.data() + weights, static_cast<int64_t>(biases), to.bias.data(), compute);
    }
    return rank_->HandOver(lane_);
  }
  std::vector<float> copy(found.size());
  device.Copy(reinterpret_cast<std::byte*>(copy.data()), reinterpret_cast<const std::byte*>(found.data()),
              found.size_bytes(), compute);
  RETURN_IF_ERROR(device.Await(compute));
  std::transform(copy.begin(), copy.begin() + weights, to.weight.begin(), to.weight.begin(), std::plus<>());
  std::transform(copy.begin() + weights, copy.end(), to.bias.begin(), to.bias.begin(), std::plus<>());
  return OkStatus();
}

Timeline MoeLayer::LastTimeline(Phase phase) const {
  const bool ran = phase == Phase::kForward ? forward_ran_ : backward_ran_;
  return ran ? runner_->LastTimeline(phase) : Timeline();
}

Status MoeLayer::Run(const Work& work) {
  Device& device = rank_->device();
  RankStreams& streams = rank_->streams(lane_);
  Stream& compute = streams[StreamKind::kCompute];
  const Rows& rows = work.rows;
  RETURN_IF_ERROR(rank_->AwaitHandedOver(lane_));
  RETURN_IF_ERROR(rank_->FollowJob(lane_));
  device.Label(compute, "copy in");
  if (!rows.from.empty()) device.Copy(rows.in, rows.from.data(), rows.from.size(), compute);
  const Rows& counts = work.counts;
  if (!counts.from.empty()) device.Copy(counts.in, counts.from.data(), counts.from.size(), compute);
  if (work.takes_weights) kernels_->TakeWeights(compute);
  streams.Fork();
  work.enqueue();
  streams.Join();
  device.Label(compute, "copy out");
  if (!rows.to.empty()) device.Copy(rows.to.data(), rows.out, rows.to.size(), compute);
  if (!counts.to.empty()) device.Copy(counts.to.data(), counts.out, counts.to.size(), compute);
  if (work.gives_gradients) kernels_->GiveGradients(compute);
  const Status handed_over = rank_->HandOver(lane_);
  const bool awaits_counts = !counts_are_queued() && (!counts.from.empty() || !counts.to.empty());
  const Status awaited = awaits_counts ? rank_->AwaitHandedOver(lane_) : OkStatus();
  return handed_over.ok() ? awaited : handed_over;
}

Status MoeLayer::CheckBackward(std::span<const std::byte> output_gradient, std::span<std::byte> input_gradient) const {
  if (!trains()) return error::ForwardOnly();
  if (!backward_due_) return error::BackwardBeforeForward();
  if (whole_ && workload_.layer.aux_loss_coefficient > 0 && counts_->tokens < whole_->tokens) {
    return error::BackwardBeforeLastPart(counts_->tokens, whole_->tokens);
  }
  if (whole_) RETURN_IF_ERROR(AwaitCounts(*counts_));
  RETURN_IF_ERROR(CheckRows("output_gradient", output_gradient.size()));
  return CheckRows("input_gradient", input_gradient.size());
}

Status MoeLayer::CheckRows(const char* name, size_t bytes) const {
  const auto expected = static_cast<size_t>(SizesOf(workload_.layer, workload_.layout).input_bytes);
  return bytes == expected ? OkStatus() : error::WrongRows(name, bytes, expected, workload_.layer);
}

}  // namespace moeplan::executor
