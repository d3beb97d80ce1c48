#include "agent/step_operations.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "models/measurement/cost_key.h"
#include "models/text.h"

namespace moeplan::agent {
namespace {

// Queues what it is given.
class QueuedFunction final : public Operation {
 public:
  explicit QueuedFunction(std::function<void(executor::Stream&)> enqueue) : enqueue_(std::move(enqueue)) {}
  void Enqueue(executor::Stream& stream) override { enqueue_(stream); }

 private:
  const std::function<void(executor::Stream&)> enqueue_;
};

// A layer of one expert of these dimensions, whose products stand for a linear layer's or for any.
Workload PlainExpert(int model_dim, int hidden_dim) {
  Workload workload;
  workload.layer = {.batch = 1,
                    .sequence_length = 1,
                    .model_dim = model_dim,
                    .hidden_dim = hidden_dim,
                    .experts = 1,
                    .top_k = 1,
                    .bytes_per_element = 4};
  return workload;
}

constexpr int kPlainDim = 256, kPlainHidden = 1024;
constexpr double kSurelyTimedS = 1e-3;  // A product that takes as long tells its rate.
constexpr double kFirstFlops = 1e7;
constexpr double kMostWeights = 1 << 30;  // Of a linear layer.

}  // namespace

StepOperations::StepOperations(executor::Rank& rank, int rank_number, const Cluster& cluster,
                               std::optional<Workload> workload)
    : rank_(rank), rank_number_(rank_number), cluster_(cluster), workload_(std::move(workload)) {}

StatusOr<std::vector<Operation*>> StepOperations::Of(const Task& task, const StepTask& step) {
  std::vector<Operation*> operations;
  for (const Work& work : step.work) {
    const auto* collective = std::get_if<CollectiveKey>(&work.key);
    if (collective != nullptr && collective->group.size == 1) return operations;  // Nothing is sent.
    StatusOr<Operation*> operation = Find(task.stream, work);
    if (!operation.ok()) return operation.status().Within(task.name);
    operations.push_back(*operation);
  }
  if (!operations.empty()) return operations;
  if (task.stream != StreamKind::kCompute) {
    return InvalidInput(
        StrCat(task.name, ": found no bytes, groupSize and ranksPerNode, expected them of a collective that is run"));
  }
  if (step.time_s.value_or(0) <= 0) return operations;
  StatusOr<Operation*> operation = OfTime(*step.time_s);
  if (!operation.ok()) return operation.status().Within(task.name);
  return std::vector<Operation*>{*operation};
}

StatusOr<Operation*> StepOperations::Find(StreamKind stream, const Work& work) {
  const Key key = {stream, work.key, work.size};
  if (const auto found = operations_.find(key); found != operations_.end()) return found->second.get();
  ASSIGN_OR_RETURN(std::unique_ptr<Operation> made, Make(stream, work));
  return operations_.emplace(key, std::move(made)).first->second.get();
}

StatusOr<std::unique_ptr<Operation>> StepOperations::Make(StreamKind stream, const Work& work) {
  if (const auto* collective = std::get_if<CollectiveKey>(&work.key)) {
    return MakeGroupOperation(stream, *collective, work.size);
  }
  const auto& key = std::get<KernelKey>(work.key);
  if (IsOfTheRestOfAStep(key.kernel)) {
    if (rank_.StepKernel(key, work.size) != nullptr) return MakeKernel(key, work.size, rank_, {});
    return MakeStandIn(key, work.size);
  }
  if (key.kernel == Kernel::kDeviceCopy) {
    return MakeKernel(key, work.size, rank_, workload_ ? *workload_ : PlainExpert(kPlainDim, kPlainHidden));
  }
  if (!workload_) {
    return InvalidInput(
        StrCat(Describe(work.key), ": found no workload in the graph, expected that of its MoE layers"));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Operation> made, MakeKernel(key, work.size, rank_, *workload_));
  // A kernel that is measured there and back runs on its share of the size, so that both take what one of them does.
  if (made->share() < 1) return MakeKernel(key, made->share() * work.size, rank_, *workload_);
  return made;
}

// Each stream has communicators of its own, as their collectives run beside each other.
StatusOr<std::unique_ptr<Operation>> StepOperations::MakeGroupOperation(StreamKind stream, const CollectiveKey& key,
                                                                        double bytes) {
  ASSIGN_OR_RETURN(const GroupPlacement placement, PlacementOf(key, Ranks(cluster_), cluster_.gpus_per_node));
  ASSIGN_OR_RETURN(executor::GroupCommunicators * groups,
                   rank_.runtime().GroupsOf(placement.layout, static_cast<int>(stream), key.ctas));
  return MakeCollective(key, bytes, {.device = rank_.device(), .group = (*groups)[placement.group]});
}

StatusOr<std::unique_ptr<Operation>> StepOperations::MakeStandIn(const KernelKey& key, double size) {
  if (key.kernel == Kernel::kHostLaunch) return std::make_unique<QueuedFunction>([](executor::Stream&) {});
  if (!CountsFlops(key.kernel)) {
    return MakeKernel({.kernel = Kernel::kDeviceCopy}, size / 2, rank_,
                      workload_ ? *workload_ : PlainExpert(kPlainDim, kPlainHidden));
  }
  const bool linear = IsLinear(key.kernel);
  if (linear && 1.0 * key.shape.in_features * key.shape.out_features > kMostWeights) {
    return InvalidInput(
        StrCat(Describe(key), ": found more than ", kMostWeights, " weights, expected what a rank holds"));
  }
  const Workload expert = linear ? PlainExpert(key.shape.in_features, key.shape.out_features)
                                 : PlainExpert(key.shape.query_key_dim, key.shape.sequence);
  const double flops = key.kernel == Kernel::kAttentionGradient ? 2 * size : size;
  return MakeKernel(KeyOf(Kernel::kExpertGemm, expert.layer, expert.layout), flops, rank_, expert);
}

StatusOr<Operation*> StepOperations::OfTime(double time_s) {
  std::unique_ptr<Operation>& known = timed_[time_s];
  if (known != nullptr) return known.get();
  if (auto enqueue = rank_.TimedKernel(time_s)) {
    known = std::make_unique<QueuedFunction>(std::move(enqueue));
    return known.get();
  }
  const Workload expert = PlainExpert(kPlainDim, kPlainHidden);
  const KernelKey product = KeyOf(Kernel::kExpertGemm, expert.layer, expert.layout);
  double flops = kFirstFlops;
  // Larger ones until one is long enough to be timed, then one of the length that is wanted, corrected once.
  for (int corrections = 0; corrections < 2;) {
    ASSIGN_OR_RETURN(known, MakeKernel(product, flops, rank_, expert));
    ASSIGN_OR_RETURN(const double taken_s, TimeOf(*known));
    const bool timed = taken_s >= std::min(kSurelyTimedS, time_s);
    flops = timed ? flops * time_s / taken_s : 4 * flops;
    corrections += timed ? 1 : 0;
  }
  ASSIGN_OR_RETURN(known, MakeKernel(product, flops, rank_, expert));
  return known.get();
}

// The shortest of a few runs alone on this rank.
StatusOr<double> StepOperations::TimeOf(Operation& operation) {
  constexpr int kRuns = 4;
  executor::Device& device = rank_.device();
  executor::Stream& stream = rank_.runtime().streams()[StreamKind::kCompute];
  const std::unique_ptr<executor::Event> start = device.MakeEvent(), end = device.MakeEvent();
  double shortest_s = 0;
  for (int run = 0; run < kRuns; ++run) {
    device.Label(stream, "rate of products");
    device.Record(*start, stream);
    operation.Enqueue(stream);
    device.Record(*end, stream);
    RETURN_IF_ERROR(device.Synchronize());
    const double taken_s = device.TimeS(*end) - device.TimeS(*start);
    shortest_s = run == 0 ? taken_s : std::min(shortest_s, taken_s);
  }
  return std::max(shortest_s, 1e-9);
}

}  // namespace moeplan::agent
