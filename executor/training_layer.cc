#include "executor/training_layer.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "executor/errors.h"
#include "executor/plan_agreement.h"
#include "models/plan/build_plan.h"
#include "models/schedule/schedules.h"

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
Status JoinGroups(const TaskGraph& graph, RankRuntime& rank) {
  const Layout& layout = graph.layout;
  ASSIGN_OR_RETURN(GroupCommunicators * groups, rank.GroupsOf(layout, /*set=*/0, graph.communication_ctas));
  for (const Task& task : graph.tasks) {
    const auto* op = std::get_if<CollectiveOp>(&task.op);
    if (op == nullptr || op->algorithm == AllToAllAlgorithm::kDirect) continue;
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

// The same plan for fewer tokens.
LayerPlan ForTokens(LayerPlan plan, int tokens) {
  Layer& layer = plan.workload.layer;
  if (tokens == static_cast<int>(SizesOf(layer, plan.workload.layout).tokens)) return plan;
  layer.batch = 1;
  layer.sequence_length = tokens * plan.workload.layout.context_parallel;
  const int most = MaxPieces(plan.knobs.family, plan.workload);
  const bool shares_fit = ChunkSharesAllowed(plan.knobs, plan.workload).ok();
  if (PiecesOf(plan.knobs) <= most && shares_fit) return plan;
  plan.knobs = WithPieces(plan.knobs, std::min(PiecesOf(plan.knobs), most));
  plan.knobs.chunk_shares.clear();
  plan.order.clear();
  return plan;
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
  RETURN_IF_ERROR(JoinGroups(graph, rank));
  return std::unique_ptr<TrainingLayer>(new TrainingLayer(std::move(training), graph, rank));
}

StatusOr<std::unique_ptr<MoeLayer>> TrainingLayer::LayerFor(int tokens, const LayerWeightsView& weights) {
  Remember(tokens);
  std::vector<std::unique_ptr<MoeLayer>>& idle = idle_[tokens];
  if (!idle.empty()) {
    std::unique_ptr<MoeLayer> layer = std::move(idle.back());
    idle.pop_back();
    return layer;
  }
  const LayerPlan plan = ForTokens(plan_, tokens);
  // Where gradients lie is said by each backward pass.
  LayerGradientsView gradients;
  gradients.given = true;
  ASSIGN_OR_RETURN(std::unique_ptr<Kernels> kernels, rank_->make_kernels()(plan.workload.layer, weights, gradients));
  ASSIGN_OR_RETURN(MoeLayer layer, MoeLayer::Make(plan, *rank_, std::move(kernels)));
  return std::make_unique<MoeLayer>(std::move(layer));
}

void TrainingLayer::Remember(int tokens) {
  std::erase(recent_, tokens);
  recent_.insert(recent_.begin(), tokens);
  if (recent_.size() <= kMostCounts) return;
  idle_.erase(recent_.back());
  recent_.pop_back();
}

void TrainingLayer::TakeBack(int tokens, std::unique_ptr<MoeLayer> layer) {
  if (std::ranges::find(recent_, tokens) != recent_.end()) idle_[tokens].push_back(std::move(layer));
}

StatusOr<TrainingLayer::Pass> TrainingLayer::Forward(int tokens, std::span<const std::byte> input,
                                                     std::span<std::byte> output, const LayerWeightsView& weights) {
  const int most = static_cast<int>(SizesOf(plan_.workload.layer, plan_.workload.layout).tokens);
  if (tokens < 1 || tokens > most) return error::WrongTokens(tokens, most);
  ASSIGN_OR_RETURN(std::unique_ptr<MoeLayer> layer, LayerFor(tokens, weights));
  Pass pass(*this, tokens, std::move(layer));
  RETURN_IF_ERROR(pass.layer_->UseMemory(weights, {}));
  RETURN_IF_ERROR(pass.layer_->Forward(input, output));
  return pass;
}

TrainingLayer::Pass::~Pass() {
  if (layer_ != nullptr) owner_->TakeBack(tokens_, std::move(layer_));
}

Status TrainingLayer::Pass::Backward(std::span<const std::byte> output_gradient, std::span<std::byte> input_gradient,
                                     const LayerGradientsView& gradients, std::span<float> gate_gradient) {
  if (!gradients.given) return error::NoGradients();
  RETURN_IF_ERROR(layer_->UseMemory({}, gradients));
  RETURN_IF_ERROR(layer_->Backward(output_gradient, input_gradient));
  return AddGateGradient(gate_gradient);
}

Status TrainingLayer::Pass::BackwardOfInput(std::span<const std::byte> output_gradient,
                                            std::span<std::byte> input_gradient, std::span<float> gate_gradient) {
  RETURN_IF_ERROR(layer_->BackwardOfInput(output_gradient, input_gradient));
  return AddGateGradient(gate_gradient);
}

Status TrainingLayer::Pass::AddWeightGradients(const LayerGradientsView& gradients) {
  if (!gradients.given) return error::NoGradients();
  RETURN_IF_ERROR(layer_->UseMemory({}, gradients));
  return layer_->AddWeightGradients();
}

Status TrainingLayer::Pass::AddGateGradient(std::span<float> to) const {
  const std::span<const float> on_device = layer_->gate_gradient();
  if (to.size() != on_device.size()) return error::WrongSize("gate_gradient", to.size(), on_device.size());
  std::vector<float> copy;
  std::span<const float> found = on_device;
  Device& device = owner_->rank_->device();
  if (!device.host_reads_memory()) {
    copy.resize(on_device.size());
    device.Copy(reinterpret_cast<std::byte*>(copy.data()), reinterpret_cast<const std::byte*>(on_device.data()),
                on_device.size_bytes(), owner_->rank_->streams()[StreamKind::kCompute]);
    RETURN_IF_ERROR(device.Synchronize());
    found = copy;
  }
  std::ranges::transform(found, to, to.begin(), std::plus<>());
  return OkStatus();
}

}  // namespace moeplan::executor
