#include "planner/layout/moe_plans.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "models/check.h"
#include "models/measurement/cost_key.h"
#include "models/memory/graph_memory.h"
#include "models/schedule/schedules.h"
#include "models/text.h"
#include "models/timeline/timeline.h"
#include "planner/search/plan_layer.h"

namespace moeplan::planner {
namespace {

// Counts what the host launches for a task: of experts two products, twice as many backward, and the activation; of
// everything but the router and permutations one kernel or collective.
int LaunchesOf(const Task& task, bool backward) {
  switch (task.kind) {
    case TaskKind::kGate: return kRouterLaunches;
    case TaskKind::kPermute:
    case TaskKind::kCombine: return kPermuteLaunches;
    case TaskKind::kExpert: return backward ? 5 : 3;
    default: return 1;
  }
}

MoeTime TimeOf(const Plan& plan, const TaskGraph& graph) {
  MOEPLAN_CHECK(plan.timeline.size() == graph.tasks.size());
  MoeTime time;
  for (TaskId task = 0; task < graph.first_backward; ++task) {
    time.forward_s = std::max(time.forward_s, plan.timeline[task].end_s);
    time.forward_launches += LaunchesOf(graph.tasks[task], /*backward=*/false);
    const TaskTiming& timing = plan.timeline[task];
    const bool exchanges = timing.kind == TaskKind::kAllToAll;
    (exchanges ? time.forward_exchange_s : time.forward_rest_s) += timing.end_s - timing.start_s;
  }
  time.backward_s = plan.predicted_time_s - time.forward_s;
  for (size_t task = graph.first_backward; task < plan.timeline.size(); ++task) {
    const TaskTiming& timing = plan.timeline[task];
    time.backward_launches += LaunchesOf(graph.tasks[task], /*backward=*/true);
    const double task_s = timing.end_s - timing.start_s;
    if (Communicates(timing.kind)) time.backward_communication_s += task_s;
    const bool of_weights = std::holds_alternative<ExpertWeightGradientOp>(graph.tasks[task].op);
    const bool exchanges = timing.kind == TaskKind::kAllToAll;
    (of_weights ? time.weight_gradient_s : exchanges ? time.backward_exchange_s : time.backward_rest_s) += task_s;
  }
  return time;
}

// The fewest nodes over which the groups close: a cluster that repeats them gives the same layer.
Profile OverItsGroups(const MoeQuestion& question, const Profile& profile) {
  const Cluster& cluster = profile.cluster;
  const int expert_ranks = question.expert_parallel * question.expert_sharding_parallel;
  const int ranks = std::lcm(std::lcm(question.tensor_parallel, expert_ranks), cluster.gpus_per_node);
  Profile groups = profile;
  groups.cluster = {.nodes = ranks / cluster.gpus_per_node,
                    .gpus_per_node = cluster.gpus_per_node,
                    .peak_flops_per_s = cluster.peak_flops_per_s};
  return groups;
}

// Whether a rank's part of the shared expert and that of a routed one have equal matrices.
bool IsAsWide(const Layer& layer, const Layout& layout) {
  return layer.shared_hidden_dim > 0 &&
         SharedExpertKey(Kernel::kExpertGemm, layer, layout) == KeyOf(Kernel::kExpertGemm, layer, layout);
}

bool IsChosen(const Knobs& knobs, const MoeChoice& choice) {
  return knobs.family == choice.family && (choice.chunks == 0 || knobs.chunks == choice.chunks) &&
         (choice.partition_degree == 0 || knobs.partition_degree == choice.partition_degree);
}

// Null: all plans.
MoePlans PlansOf(const Workload& workload, const Profile& groups, const MoeChoice* choice, const StopSignals& stop) {
  MoePlans result;
  PlanOptions options = {.rules = false, .for_rows = true};
  if (choice != nullptr) {
    options.family = choice->family;
    options.pieces = std::max(choice->chunks, choice->partition_degree);
  }
  const StatusOr<PlanAnswer> answer = PlanLayer(workload, groups, options, {.nodes = 0, .stop = stop});
  if (!answer.ok()) {
    result.reason = answer.status().message();
    return result;
  }
  result.warnings = answer->warnings;
  result.layer = answer->workload;
  result.groups = groups.cluster;
  double least_bytes = std::numeric_limits<double>::infinity();
  for (const Plan& plan : answer->candidates) {
    if (choice != nullptr && !IsChosen(plan.knobs, *choice)) continue;
    if (plan.memory_bytes >= least_bytes) continue;
    least_bytes = plan.memory_bytes;
    const StatusOr<TaskGraph> graph = BuildSchedule(plan.knobs, answer->workload, groups.cluster);
    MOEPLAN_CHECK(graph.ok());
    result.plans.push_back({.knobs = plan.knobs,
                            .time = TimeOf(plan, *graph),
                            .low_s = plan.low_s,
                            .high_s = plan.high_s,
                            .memory = {BufferBytes(*graph), ExpertCopies(*graph)},
                            .plan = plan});
  }
  if (choice != nullptr && result.plans.empty()) result.reason = NoPlanInSuchPieces(choice->family);
  return result;
}

}  // namespace

MoeQuestion QuestionOf(const LayoutRequest& request, const LayoutPoint& point) {
  return {.tokens = static_cast<int>(TokensOf(point, request.sequence_length)),
          .tensor_parallel = point.layout.tensor_parallel,
          .expert_parallel = point.layout.expert_parallel,
          .expert_sharding_parallel = point.layout.expert_sharding_parallel};
}

Workload WorkloadOf(const LayoutRequest& request, const MoeQuestion& question) {
  Workload workload;
  workload.layer = LayerOf(request.model);
  workload.layer.batch = 1;
  workload.layer.sequence_length = question.tokens;
  workload.layer.capacity_factor = request.capacity_factor;
  workload.layer.bytes_per_element = request.bytes_per_element;
  if (!request.overlaps_shared_experts) workload.layer.shared_hidden_dim = 0;
  workload.layout = {.tensor_parallel = question.tensor_parallel,
                     .expert_parallel = question.expert_parallel,
                     .expert_sharding_parallel = question.expert_sharding_parallel};
  // A shared expert as wide as a routed one would be looked up as if it were one: a column more tells them apart.
  if (IsAsWide(workload.layer, workload.layout)) workload.layer.shared_hidden_dim += question.tensor_parallel;
  workload.max_chunks = kMostPieces;
  workload.max_partition_degree = kMostPieces;
  workload.phase = Phase::kTraining;
  return workload;
}

Dispatching DispatchingOf(const LayoutRequest& request) {
  const ModelConfig& model = request.model;
  return {request.dispatcher,
          request.transport,
          {.experts = model.experts,
           .top_k = model.top_k,
           .groups = model.router.expert_groups,
           .groups_per_token = model.router.groups_per_token},
          request.capacity_factor};
}

bool HasOneSchedule(const LayoutRequest& request) {
  return request.as_frameworks || request.dispatcher != Dispatcher::kAllToAll || request.overlaps_experts;
}

Family OneSchedule(int tensor_parallel) { return tensor_parallel > 1 ? Family::kParmS1 : Family::kBaseline; }

MoePlans PlanMoe(const LayoutRequest& request, const MoeQuestion& question, const Profile& profile,
                 const StopSignals& stop) {
  if (HasOneSchedule(request)) {
    Workload whole = WorkloadOf(request, question);
    whole.max_chunks = whole.max_partition_degree = 1;
    const MoeChoice usual = {.family = OneSchedule(question.tensor_parallel)};
    return PlansOf(whole, OverItsGroups(question, profile), &usual, stop);
  }
  return PlansOf(WorkloadOf(request, question), OverItsGroups(question, profile), nullptr, stop);
}

MoePlans PlanMoeAsGraph(const LayoutRequest& request, const MoeQuestion& question, const Profile& profile,
                        const StopSignals& stop) {
  const bool shared = question.tensor_parallel > 1 || question.expert_sharding_parallel > 1;
  const MoeChoice whole = {.family = shared ? Family::kParmS1 : Family::kBaseline, .chunks = 1, .partition_degree = 1};
  Profile direct = profile;
  std::erase_if(direct.collectives, [](const CollectiveModel& entry) {
    return entry.key.collective == Collective::kAllToAll && entry.key.algorithm != AllToAllAlgorithm::kDirect;
  });
  return PlanMoeAs(whole, request, question, direct, stop);
}

MoePlans PlanMoeAs(const MoeChoice& choice, const LayoutRequest& request, const MoeQuestion& question,
                   const Profile& profile, const StopSignals& stop) {
  Workload workload = WorkloadOf(request, question);
  workload.max_chunks = std::max(workload.max_chunks, choice.chunks);
  workload.max_partition_degree = std::max(workload.max_partition_degree, choice.partition_degree);
  return PlansOf(workload, OverItsGroups(question, profile), &choice, stop);
}

}  // namespace moeplan::planner
