#include "executor/training_layer.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "executor/errors.h"
#include "executor/plan_agreement.h"
#include "models/check.h"
#include "models/plan/build_plan.h"
#include "models/schedule/schedules.h"
#include "models/workload/names.h"

namespace moeplan::executor {
namespace {

// The order of a plan for one pass, with the tasks of the other before or behind it as the schedule has them.
Status CompleteOrder(LayerPlan& plan) {
  const Plan candidate = {.knobs = plan.knobs};
  ASSIGN_OR_RETURN(const TaskGraph graph, BuildPlan(candidate, plan.workload, plan.cluster));
  const std::set<std::string> known(plan.order.begin(), plan.order.end());
  std::vector<std::string> before, behind;
  const TaskId first_backward = TasksOf(graph, Phase::kBackward).first;
  for (TaskId id = 0; id < static_cast<TaskId>(graph.tasks.size()); ++id) {
    const std::string& name = graph.tasks[id].name;
    if (!known.contains(name)) (id < first_backward ? before : behind).push_back(name);
  }
  plan.order.insert(plan.order.begin(), before.begin(), before.end());
  plan.order.insert(plan.order.end(), behind.begin(), behind.end());
  return OkStatus();
}

// Whether a task is a slice of dense gradients.
bool IsSlice(const std::string& task) {
  const std::string first = SliceName(0);  // Ends with its number, 1.
  return task.starts_with(std::string_view(first).substr(0, first.size() - 1));
}

// Makes the communicators that runners of the graph will ask for, so that they make none: a pipeline stage may run its
// first pass long before another does.
Status JoinGroups(const TaskGraph& graph, RankRuntime& rank, Lane lane) {
  const Layout& layout = graph.layout;
  ASSIGN_OR_RETURN(GroupCommunicators * groups,
                   rank.GroupsOf(layout, static_cast<int>(lane), graph.communication_ctas));
  for (const Task& task : graph.tasks) {
    const auto* op = std::get_if<CollectiveOp>(&task.op);
    if (op == nullptr) continue;
    if (op->algorithm == AllToAllAlgorithm::kDirect && op->team == Team::kGroup) continue;
    const GroupShape shape = ShapeOf(op->group, layout, graph.gpus_per_node);
    RETURN_IF_ERROR(groups->TeamsOf(op->group, shape, IndexIn(op->group, layout, rank.StageRank(layout))).status());
  }
  return OkStatus();
}

StatusOr<LayerPlan> PlanForTraining(LayerPlan plan) {
  Workload& workload = plan.workload;
  std::erase_if(plan.order, IsSlice);
  plan.gradients = {};
  workload.gradient_bytes = 0;
  workload.min_chunk_bytes = 1;
  workload.max_chunks = workload.max_partition_degree = kMostPiecesAsked;
  workload.phase = Phase::kTraining;
  ASSIGN_OR_RETURN(workload, ResolveWorkload(workload, plan.cluster));
  if (!plan.order.empty()) RETURN_IF_ERROR(CompleteOrder(plan));
  return plan;
}

Layer WithTokens(Layer layer, const Layout& layout, int tokens) {
  if (tokens == static_cast<int>(SizesOf(layer, layout).tokens)) return layer;
  layer.batch = 1;
  layer.sequence_length = tokens * layout.context_parallel;
  return layer;
}

// The same plan for another layer of that kind, in fewer pieces where its slots have no room for so many.
LayerPlan ForLayer(LayerPlan plan, const Layer& layer) {
  if (layer == plan.workload.layer) return plan;
  plan.workload.layer = layer;
  const int most = MaxPieces(plan.knobs.family, plan.workload);
  const bool shares_fit = ChunkSharesAllowed(plan.knobs, plan.workload).ok();
  if (PiecesOf(plan.knobs) <= most && shares_fit) return plan;
  plan.knobs = WithPieces(plan.knobs, std::min(PiecesOf(plan.knobs), most));
  plan.knobs.chunk_shares.clear();
  plan.order.clear();
  return plan;
}

bool OnDevice(const WeightsMemory& weights) { return std::holds_alternative<DeviceWeights>(weights); }

// The slots of an expert for a whole source batch. A part's plan needs no more of them than the part has tokens, as a
// token chooses an expert once at most; and a dropless layer has one for every token.
int SlotsOfBatch(const LayerPlan& plan, int tokens) {
  const Layout& layout = plan.workload.layout;
  const Layer& layer = plan.workload.layer;
  return IsDropless(layer) ? tokens : SizesOf(WithTokens(layer, layout, tokens), layout).slots;
}

bool GatesSlices(const TaskGraph& graph) {
  for (const Task& task : graph.tasks) {
    if (const auto* gate = std::get_if<GateOp>(&task.op)) return graph.buffers[gate->tokens].sliced;
  }
  return false;
}

}  // namespace

TrainingLayer::TrainingLayer(LayerPlan plan, const TaskGraph& graph, RankRuntime& rank)
    : plan_(std::move(plan)),
      rank_(&rank),
      shard_(ShardOf(plan_.workload.layer, plan_.workload.layout, rank.StageRank(plan_.workload.layout))),
      gates_slices_(GatesSlices(graph)) {}

StatusOr<std::unique_ptr<TrainingLayer>> TrainingLayer::Make(const StatusOr<LayerPlan>& agreed, RankRuntime& rank) {
  RETURN_IF_ERROR(AgreeOnPlan(agreed, rank));
  const LayerPlan& plan = *agreed;
  if (Ranks(plan.cluster) != rank.world().size()) return error::WrongRanks(Ranks(plan.cluster), rank.world().size());
  ASSIGN_OR_RETURN(LayerPlan training, PlanForTraining(plan));
  // What is wrong with it is told now, not by the first pass.
  const Plan candidate = {.knobs = training.knobs, .order = training.order};
  ASSIGN_OR_RETURN(const TaskGraph graph, BuildPlan(candidate, training.workload, training.cluster));
  RETURN_IF_ERROR(JoinGroups(graph, rank, Lane::kInLine));
  std::unique_ptr<TrainingLayer> layer(new TrainingLayer(std::move(training), graph, rank));
  layer->open_[static_cast<size_t>(Lane::kInLine)] = true;
  if (IsDropless(layer->plan_.workload.layer)) {
    ASSIGN_OR_RETURN(layer->counter_, PairCounter::Make(layer->plan_.workload, rank));
  }
  return layer;
}

Status TrainingLayer::Open(Lane lane) {
  bool& open = open_[static_cast<size_t>(lane)];
  if (open) return OkStatus();
  const Plan candidate = {.knobs = plan_.knobs, .order = plan_.order};
  ASSIGN_OR_RETURN(const TaskGraph graph, BuildPlan(candidate, plan_.workload, plan_.cluster));
  RETURN_IF_ERROR(JoinGroups(graph, *rank_, lane));
  open = true;
  return OkStatus();
}

StatusOr<std::unique_ptr<MoeLayer>> TrainingLayer::LayerFor(Size size, const WeightsMemory& weights) {
  RETURN_IF_ERROR(rank_->AwaitHandedOver(size.lane));  // What is dropped or used again now may be at work.
  Remember(size);
  std::vector<std::unique_ptr<MoeLayer>>& idle = idle_[size];
  if (!idle.empty()) {
    std::unique_ptr<MoeLayer> layer = std::move(idle.back());
    idle.pop_back();
    return layer;
  }
  std::optional<WholeBatch> whole;
  const LayerPlan plan = PlanFor(size, whole);
  ASSIGN_OR_RETURN(std::unique_ptr<Kernels> kernels, rank_->MakeKernels(plan.workload.layer, shard_, weights));
  std::shared_ptr<ReplayAgreement>& agreement = agreements_[size];
  if (agreement == nullptr) agreement = std::make_shared<ReplayAgreement>();
  ASSIGN_OR_RETURN(MoeLayer layer, MoeLayer::Make(plan, *rank_, std::move(kernels),
                                                  {.whole = whole, .agreement = agreement, .lane = size.lane}));
  return std::make_unique<MoeLayer>(std::move(layer));
}

void TrainingLayer::Remember(Size size) {
  std::erase(recent_, size);
  recent_.insert(recent_.begin(), size);
  const auto of_its_kind = [&](const Size& other) {
    return other.lane == size.lane && other.is_usual() == size.is_usual();
  };
  if (std::ranges::count_if(recent_, of_its_kind) <= (size.is_usual() ? kMostUsual : kMostOthers)) return;
  const auto oldest = std::ranges::find_if(recent_.rbegin(), recent_.rend(), of_its_kind);
  idle_.erase(*oldest);
  recent_.erase(std::next(oldest).base());
}

void TrainingLayer::TakeBack(Size size, std::unique_ptr<MoeLayer> layer) {
  if (std::ranges::find(recent_, size) != recent_.end()) return idle_[size].push_back(std::move(layer));
  (void)rank_->AwaitHandedOver(size.lane);  // It may be at work; its error is that of the next call, too.
}

int TrainingLayer::MostTokens() const {
  return static_cast<int>(SizesOf(plan_.workload.layer, plan_.workload.layout).tokens);
}

StatusOr<TrainingLayer::Pass> TrainingLayer::Forward(int tokens, std::span<const std::byte> input,
                                                     std::span<std::byte> output, const WeightsMemory& weights,
                                                     Lane lane) {
  if (tokens < 1 || tokens > MostTokens()) return error::WrongTokens(tokens, MostTokens());
  RETURN_IF_ERROR(Open(lane));
  Size size = {.tokens = tokens, .on_device = OnDevice(weights), .lane = lane};
  if (IsDropless(plan_.workload.layer)) {
    ASSIGN_OR_RETURN(size.slots,
                     CountedSlots({.tokens = tokens, .batch_tokens = tokens, .lane = lane}, input, weights));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<MoeLayer> layer, LayerFor(size, weights));
  Pass pass(*this, size, std::move(layer));
  RETURN_IF_ERROR(UseMemory(*pass.layer_, weights));
  pass.queued_ = lane != Lane::kInLine;
  RETURN_IF_ERROR(pass.layer_->Forward(input, output));
  return pass;
}

StatusOr<TrainingLayer::Pass> TrainingLayer::Forward(int tokens, std::span<const std::byte> input,
                                                     std::span<std::byte> output, const WeightsMemory& weights,
                                                     BatchInParts& batch, Lane lane) {
  RETURN_IF_ERROR(CheckPart(tokens, batch));
  RETURN_IF_ERROR(Open(lane));
  Size size = {.tokens = tokens, .batch_tokens = batch.tokens(), .on_device = OnDevice(weights), .lane = lane};
  const bool drops = !IsDropless(plan_.workload.layer);
  const PairCounter::Call call = {.tokens = tokens,
                                  .batch_tokens = batch.tokens(),
                                  .first_token = batch.counts_->tokens,
                                  .lane = lane,
                                  .batch_slots = drops ? SlotsOfBatch(plan_, batch.tokens()) : 0};
  if (!drops || !PartsSendRowsAlone()) {
    ASSIGN_OR_RETURN(size.slots, CountedSlots(call, input, weights));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<MoeLayer> layer, LayerFor(size, weights));
  Pass pass(*this, size, std::move(layer));
  RETURN_IF_ERROR(UseMemory(*pass.layer_, weights));
  pass.queued_ = lane != Lane::kInLine;
  RETURN_IF_ERROR(pass.layer_->ForwardOfPart(input, output, batch.counts_));
  batch.layer_ = this;
  return pass;
}

StatusOr<int> TrainingLayer::CountedSlots(const PairCounter::Call& call, std::span<const std::byte> input,
                                          const WeightsMemory& weights) {
  if (!counter_) {
    ASSIGN_OR_RETURN(counter_, PairCounter::Make(plan_.workload, *rank_));
  }
  const Layer& layer = plan_.workload.layer;
  const size_t expected = static_cast<size_t>(call.tokens) * layer.model_dim * layer.bytes_per_element;
  if (input.size() != expected) return error::WrongRows("input", input.size(), expected, layer);
  std::unique_ptr<Kernels>& kernels = gate_kernels_[OnDevice(weights)];
  const auto* const on_host = std::get_if<LayerWeightsView>(&weights);
  if (on_host != nullptr) RETURN_IF_ERROR(CheckWeights(*on_host, layer, shard_));
  if (kernels == nullptr && on_host != nullptr) {
    ASSIGN_OR_RETURN(kernels, rank_->make_kernels()(layer, *on_host, {}));
  } else if (kernels == nullptr) {
    ASSIGN_OR_RETURN(kernels, rank_->MakeKernels(layer, shard_, weights));
  }
  on_host != nullptr ? kernels->UseHostMemory(*on_host, {})
                     : kernels->UseDeviceMemory(std::get<DeviceWeights>(weights));
  return counter_->Slots(call, input, *kernels);
}

Status TrainingLayer::UseMemory(MoeLayer& layer, const WeightsMemory& weights) {
  if (const auto* const on_host = std::get_if<LayerWeightsView>(&weights)) return layer.UseMemory(*on_host, {});
  layer.UseMemory(std::get<DeviceWeights>(weights));
  return OkStatus();
}

LayerPlan TrainingLayer::PlanFor(Size size, std::optional<WholeBatch>& whole) const {
  const Layout& layout = plan_.workload.layout;
  Layer layer = WithTokens(plan_.workload.layer, layout, size.tokens);
  if (size.batch_tokens > 0) {
    whole = WholeBatch{.tokens = size.batch_tokens, .slots = SlotsOfBatch(plan_, size.batch_tokens)};
    // The whole source batch has a capacity, and its parts have none of their own.
    if (PartsSendRowsAlone()) layer.capacity_factor = 0;
  }
  const int slots = size.slots > 0 ? size.slots : whole ? std::min(whole->slots, size.tokens) : 0;
  return ForLayer(plan_, slots > 0 ? WithSlots(layer, layout, slots) : layer);
}

bool TrainingLayer::PartsSendRowsAlone() const {
  const bool exact = plan_.workload.capacity_passing == CapacityPassing::kExact;
  return plan_.knobs.family == Family::kOncePerNode || (plan_.knobs.family == Family::kParmS1 && exact);
}

Status TrainingLayer::CheckPart(int tokens, const BatchInParts& batch) const {
  const GateKind gate = plan_.workload.layer.gate;
  if (gate == GateKind::kBatchPrioritized || gate == GateKind::kExpertChoice) {
    return error::GateSeesTheWholeBatch(Name(gate));
  }
  const bool pads = plan_.workload.capacity_passing == CapacityPassing::kPadded && !PartsSendRowsAlone();
  if (gates_slices_ && pads) return error::PaddedParts();
  if (batch.tokens() < 1 || batch.tokens() > MostTokens()) return error::WrongTokens(batch.tokens(), MostTokens());
  if (batch.layer_ != nullptr && batch.layer_ != this) return error::PartOfAnotherLayer();
  if (tokens < 1 || tokens > batch.tokens_left()) return error::WrongPart(tokens, batch.tokens_left());
  return OkStatus();
}

TrainingLayer::Pass::~Pass() {
  if (layer_ == nullptr) return;
  (void)Finish();  // Its error is that of the next call, too.
  owner_->TakeBack(size_, std::move(layer_));
}

Status TrainingLayer::Pass::Finish() {
  if (!std::exchange(queued_, false)) return OkStatus();
  const Status finished = owner_->rank_->Finish(size_.lane), counted = layer_->AwaitCounts();
  return finished.ok() ? counted : finished;
}

Status TrainingLayer::Pass::Backward(std::span<const std::byte> output_gradient, std::span<std::byte> input_gradient,
                                     const GradientsMemory& gradients, const GateGradientsView& gate_gradients) {
  RETURN_IF_ERROR(UseMemory(gradients));
  queued_ = size_.lane != Lane::kInLine;
  RETURN_IF_ERROR(layer_->Backward(output_gradient, input_gradient));
  return layer_->AddGateGradients(gate_gradients);
}

Status TrainingLayer::Pass::BackwardOfInput(std::span<const std::byte> output_gradient,
                                            std::span<std::byte> input_gradient,
                                            const GateGradientsView& gate_gradients) {
  queued_ = size_.lane != Lane::kInLine;
  RETURN_IF_ERROR(layer_->BackwardOfInput(output_gradient, input_gradient));
  return layer_->AddGateGradients(gate_gradients);
}

Status TrainingLayer::Pass::AddWeightGradients(const GradientsMemory& gradients) {
  RETURN_IF_ERROR(UseMemory(gradients));
  queued_ = size_.lane != Lane::kInLine;
  return layer_->AddWeightGradients();
}

Status TrainingLayer::Pass::UseMemory(const GradientsMemory& gradients) {
  // The host's kernels look up where gradients are as they run.
  if (!size_.on_device) RETURN_IF_ERROR(owner_->rank_->AwaitHandedOver(size_.lane));
  if (const auto* const on_host = std::get_if<LayerGradientsView>(&gradients)) {
    return on_host->given ? layer_->UseMemory({}, *on_host) : error::NoGradients();
  }
  layer_->UseMemory(std::get<DeviceGradients>(gradients));
  return OkStatus();
}

}  // namespace moeplan::executor
