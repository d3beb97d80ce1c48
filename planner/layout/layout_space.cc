#include "planner/layout/layout_space.h"

#include <algorithm>

#include "models/text.h"
#include "planner/layout/layout_rules.h"

namespace moeplan::planner {
namespace {

constexpr int kMostMicroBatch = 64;

std::vector<int> DivisorsOf(int number) {
  std::vector<int> low, high;
  for (int i = 1; static_cast<long long>(i) * i <= number; ++i) {
    if (number % i != 0) continue;
    low.push_back(i);
    if (i != number / i) high.push_back(number / i);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

GroupShape Spaced(int size, double stride, int gpus_per_node) {
  const int fitting = std::max(1, static_cast<int>(gpus_per_node / stride));
  return {size, std::min(size, fitting)};
}

// DP ranks of a tensor-parallel place that one EP&ESP block takes in.
int BlockReplicas(const Layout& layout) {
  return std::max(1, layout.expert_parallel * layout.expert_sharding_parallel / layout.tensor_parallel);
}

double JointScale(const Layout& layout) {
  return static_cast<double>(layout.expert_parallel) * layout.context_parallel;
}

// Whether contexts may lie across the experts' ranks, as AllLayoutPoints says.
bool MayLieAcross(const LayoutRequest& request, const Layout& layout) {
  if (layout.context_parallel == 1 || layout.expert_parallel == 1) return false;
  const int block = layout.expert_parallel * layout.expert_sharding_parallel, replicas = BlockReplicas(layout);
  const bool joins = request.max_network_scale == 0 || JointScale(layout) <= request.max_network_scale;
  return joins && replicas > 1 && block % layout.tensor_parallel == 0 && layout.data_parallel % replicas == 0;
}

Status CannotLieAcross(const LayoutRequest& request, const Layout& layout) {
  const std::string joins = request.max_network_scale == 0
                                ? ""
                                : StrCat(", and EP·CP ", JointScale(layout), " is at most the ",
                                         request.max_network_scale, " ranks that the network joins");
  return InvalidInput(StrCat("layout.horizontalContexts: found true, expected it where contextParallel ",
                             layout.context_parallel, " and expertParallel ", layout.expert_parallel,
                             " are above 1, and EP·ESP over TP is a whole number above "
                             "1 that divides dataParallel ",
                             layout.data_parallel, joins));
}

LayoutPoint PlacedPoint(const LayoutRequest& request, const Layout& layout, int micro_batch, bool across) {
  const int along_scale = std::max(layout.expert_parallel, layout.context_parallel);
  return {.layout = layout,
          .micro_batch = micro_batch,
          .micro_batches = request.global_batch / layout.data_parallel / micro_batch,
          .horizontal_contexts = across,
          .network_scale = across ? static_cast<int>(JointScale(layout)) : along_scale};
}

class Enumeration {
 public:
  Enumeration(const LayoutRequest& request, const Cluster& cluster, const StopSignals& stop)
      : request_(request),
        cluster_(cluster),
        stop_(stop),
        rules_(request, cluster),
        expert_divisors_(DivisorsOf(request.model.experts)) {}

  std::vector<LayoutPoint> Run() {
    for (const int pipeline : DivisorsOf(request_.gpus)) {
      if (rules_.PipelineDivides(pipeline)) AddStage(pipeline);
      if (Ends()) break;
    }
    return std::move(points_);
  }

 private:
  bool Ends() const { return stop_.Requested() || points_.size() > kMostLayoutPoints; }

  void AddStage(int pipeline) {
    const int stage_ranks = request_.gpus / pipeline;
    for (const int tensor : DivisorsOf(cluster_.gpus_per_node)) {
      if (!rules_.TensorDivides(tensor, stage_ranks)) continue;
      for (const int contexts : DivisorsOf(stage_ranks / tensor)) {
        if (Ends()) return;
        const int data = stage_ranks / tensor / contexts;
        if (!rules_.DataDivides(data) || !rules_.ContextsDivide(contexts, tensor)) continue;
        AddExperts({.tensor_parallel = tensor,
                    .context_parallel = contexts,
                    .pipeline_parallel = pipeline,
                    .data_parallel = data},
                   stage_ranks);
      }
    }
  }

  void AddExperts(const Layout& dense, int stage_ranks) {
    if (request_.model.moe_layers() == 0) return AddMicroBatches(dense);
    for (const int sharding : DivisorsOf(cluster_.gpus_per_node)) {
      if (Ends()) return;
      if (!rules_.ShardingDivides(sharding)) continue;
      for (const int experts : expert_divisors_) {
        if (!rules_.ExpertsDivide(experts, sharding, stage_ranks)) continue;
        Layout layout = dense;
        layout.expert_parallel = experts;
        layout.expert_sharding_parallel = sharding;
        AddMicroBatches(layout);
      }
    }
  }

  void AddMicroBatches(const Layout& layout) {
    const int samples = request_.global_batch / layout.data_parallel;
    const bool may_lie_across = !request_.as_frameworks && MayLieAcross(request_, layout);
    for (int micro_batch = 1; micro_batch <= kMostMicroBatch && samples % micro_batch == 0; micro_batch *= 2) {
      const LayoutPoint point = PlacedPoint(request_, layout, micro_batch, /*across=*/false);
      if (TokensOf(point, request_.sequence_length) > kMostTokens) break;
      if (!rules_.MicroBatchesDivide(point.micro_batches, layout.pipeline_parallel)) continue;
      points_.push_back(point);
      if (may_lie_across) points_.push_back(PlacedPoint(request_, layout, micro_batch, /*across=*/true));
    }
  }

  const LayoutRequest& request_;
  const Cluster& cluster_;
  const StopSignals& stop_;
  const LayoutRules rules_;
  const std::vector<int> expert_divisors_;  // Worked out once for all points.
  std::vector<LayoutPoint> points_;
};

}  // namespace

double TokensOf(const LayoutPoint& point, int sequence_length) {
  return static_cast<double>(point.micro_batch) * (sequence_length / point.layout.context_parallel);
}

RankSlice SliceOf(const LayoutRequest& request, const LayoutPoint& point) {
  return {.tokens = TokensOf(point, request.sequence_length),
          .tensor_parallel = point.layout.tensor_parallel,
          .sequence_parallel = request.sequence_parallel,
          .context_parallel = point.layout.context_parallel,
          .stores_scores = request.attention == AttentionKernel::kStored,
          .exchanges_heads = request.context_exchange == ContextExchange::kAllToAll,
          .sequence_length = request.sequence_length,
          .bytes_per_element = request.bytes_per_element};
}

bool RuleLiesAcross(const Layout& layout) { return layout.context_parallel < layout.expert_parallel; }

int ContextStride(const LayoutPoint& point) {
  return point.layout.tensor_parallel * (point.horizontal_contexts ? BlockReplicas(point.layout) : 1);
}

GroupShape ContextGroup(const LayoutPoint& point, int gpus_per_node) {
  return Spaced(point.layout.context_parallel, ContextStride(point), gpus_per_node);
}

GroupShape DenseReplicas(const LayoutPoint& point, int gpus_per_node) {
  return ShapeOf(Group::kDenseReplicas, point.layout, gpus_per_node);
}

GroupShape ExpertReplicas(const LayoutPoint& point, int gpus_per_node) {
  const Layout& layout = point.layout;
  const int block = layout.expert_parallel * layout.expert_sharding_parallel;
  return Spaced(StageRanks(layout) / block, block, gpus_per_node);
}

int StageRanks(const Layout& layout) { return layout.tensor_parallel * layout.context_parallel * layout.data_parallel; }

GroupShape NeighbourStages(const LayoutPoint& point, int gpus_per_node) {
  const Layout& layout = point.layout;
  const double ranks = 1.0 * StageRanks(layout) * layout.pipeline_parallel;
  return {2, ranks > gpus_per_node ? 1 : 2};
}

StatusOr<LayoutPoint> PointOf(const LayoutRequest& request, const Cluster& cluster, const Layout& layout,
                              int micro_batch, std::optional<bool> horizontal_contexts) {
  RETURN_IF_ERROR(LayoutRules(request, cluster).Check(layout, micro_batch));
  Layout whole = layout;
  whole.data_parallel = request.gpus / (layout.pipeline_parallel * layout.tensor_parallel * layout.context_parallel);
  const bool may_lie_across = MayLieAcross(request, whole);
  if (horizontal_contexts == true && !may_lie_across) return CannotLieAcross(request, whole);
  const bool across = horizontal_contexts.value_or(may_lie_across && RuleLiesAcross(whole));
  const LayoutPoint point = PlacedPoint(request, whole, micro_batch, across);
  const double tokens = TokensOf(point, request.sequence_length);
  if (tokens <= kMostTokens) return point;
  return InvalidInput(StrCat("layout.microBatch: found ", micro_batch, ", which is ", tokens,
                             " tokens of a tensor-parallel group, expected at most ", kMostTokens));
}

std::vector<LayoutPoint> AllLayoutPoints(const LayoutRequest& request, const Cluster& cluster,
                                         const StopSignals& stop) {
  return Enumeration(request, cluster, stop).Run();
}

}  // namespace moeplan::planner
