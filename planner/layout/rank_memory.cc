#include "planner/layout/rank_memory.h"

#include <algorithm>

#include "models/memory/weights.h"
#include "models/step/kept_memory.h"
#include "planner/layout/precision.h"
#include "planner/layout/stages.h"

namespace moeplan::planner {
namespace {

// Returns what a linear layer keeps of an element that it reads in less than BF16, as its product does; 0 in BF16.
double LinearInputBytes(const LayoutRequest& request) {
  return request.precision == Precision::kBf16 ? 0 : OperandBytes(request.precision);
}

Keeping KeepingOf(const LayoutRequest& request) {
  Keeping keeping = {.layer_input_alone = request.recompute == Recompute::kFull,
                     .stores_scores = request.attention == AttentionKernel::kStored,
                     .linear_input_bytes = LinearInputBytes(request)};
  for (int i = 0; i < kRecomputeModules; ++i) {
    const auto module = static_cast<RecomputeModule>(i);
    if (SelectsAgain(request, module)) keeping.again.Add(module);
  }
  return keeping;
}

class StageMemory {
 public:
  StageMemory(const LayoutRequest& request, const LayoutPoint& point, const MoeMemory& moe)
      : request_(request),
        model_(request.model),
        point_(point),
        layout_(point.layout),
        moe_(moe),
        slice_(SliceOf(request, point)),
        keeping_(KeepingOf(request)) {}

  RankMemory Of(const Stage& stage) const {
    const double on_their_way = MicroBatchesOnTheirWay(stage);
    const Stage::Again& again = stage.again;
    const Stage rest = {.layers = stage.layers - again.layers,
                        .moe_layers = stage.moe_layers - again.moe_layers,
                        .next_tokens = stage.next_tokens - again.next_tokens};
    // Selective recomputation is of all layers.
    const Keeping usual = request_.recompute == Recompute::kFull ? all() : keeping_;
    const double kept = KeptBytes(InputsOf(again), keeping_) + KeptBytes(rest, usual);
    RankMemory memory = {
        .kept_bytes = on_their_way * kept,
        .logit_bytes = stage.predicts ? (1 + stage.next_tokens) * HeadBytes(model_, slice_) : 0,
        .other_bytes = stage.layers == 0 ? 0
                                         : SpareGradientBytes(model_, slice_, stage.dense_layers() > 0,
                                                              stage.moe_layers > 0, layout_.expert_sharding_parallel)};
    memory.running_bytes = std::max(0.0, RunningBytes(stage) - memory.logit_bytes);
    AddStates(stage, memory);
    return memory;
  }

 private:
  Keeping all() const {
    return {.stores_scores = keeping_.stores_scores, .linear_input_bytes = keeping_.linear_input_bytes};
  }

  // Layers that are computed again together keep what one does, its input.
  static Stage InputsOf(const Stage::Again& again) {
    return {.layers = again.inputs,
            .moe_layers = std::min(again.inputs, again.moe_layers),
            .next_tokens = again.next_tokens};
  }

  double KeptBytes(const Stage& stage, const Keeping& keeping) const {
    const int next = stage.next_tokens, moe_next = NextTokenLayersHaveExperts(model_) ? next : 0;
    return (stage.layers + next) * AttentionKeptBytes(model_, slice_, keeping) +
           (stage.dense_layers() + next - moe_next) * DenseKeptBytes(model_, slice_, keeping) +
           (stage.moe_layers + moe_next) * MoeBytes(keeping) + next * JoinKeptBytes(model_, slice_);
  }

  // Interleaved stages start twice as many warm-up passes, and those of all earlier rounds (Megatron's schedule); a
  // pass of one keeps what one of the rank's virtual stages does.
  double MicroBatchesOnTheirWay(const Stage& stage) const {
    const int after = layout_.pipeline_parallel - stage.index - 1, rounds = request_.virtual_stages;
    // One goes forward before the other is back.
    const int beside = request_.overlaps_experts ? 1 : 0;
    if (rounds == 1) return std::min(point_.micro_batches, after + 1 + beside);
    const double passes = 2.0 * after + (rounds - 1.0) * layout_.pipeline_parallel + 1 + beside;
    return std::min(1.0 * point_.micro_batches, passes / rounds);
  }

  double dense_replicas() const { return 1.0 * layout_.context_parallel * layout_.data_parallel; }
  int expert_ranks() const { return layout_.expert_parallel * layout_.expert_sharding_parallel; }

  void AddStates(const Stage& stage, RankMemory& memory) const {
    const double dense = StageDenseParameters(model_, stage) / layout_.tensor_parallel;
    const double experts = StageExpertParameters(model_, stage) / expert_ranks();
    const double expert_replicas = dense_replicas() * layout_.tensor_parallel / expert_ranks();
    for (const auto& [parameters, replicas] : {std::pair(dense, dense_replicas()), {experts, expert_replicas}}) {
      const TrainingState state = TrainingStateOf(parameters, replicas, request_.zero_stage, request_.bytes_per_element,
                                                  request_.gradient_bytes);
      memory.weight_bytes += state.weight_bytes;
      memory.gradient_bytes += state.gradient_bytes;
      memory.optimizer_bytes += state.optimizer_bytes;
      if (request_.zero_stage < kMaxZeroStage) continue;
      memory.weight_bytes += request_.bytes_per_element * parameters * (1 - 1 / replicas) / std::max(1, stage.layers);
    }
  }

  double MoeBytes(const Keeping& keeping) const {
    const double least = model_.top_k * std::min(1.0, request_.capacity_factor);
    return MoeKeptBytes(model_, slice_, moe_.copies < 0 ? least : moe_.copies, layout_.expert_sharding_parallel,
                        keeping);
  }

  // Beyond what the layers keep.
  double RunningBytes(const Stage& stage) const {
    const double moe = stage.moe_layers > 0 ? MoeBytes(all()) - MoeBytes(keeping_) : 0;
    const double dense =
        stage.dense_layers() > 0 ? DenseKeptBytes(model_, slice_, all()) - DenseKeptBytes(model_, slice_, keeping_) : 0;
    // At the most: as if all layers of a chunk were of the larger kind.
    const double attention = AttentionKeptBytes(model_, slice_, all()),
                 kept = AttentionKeptBytes(model_, slice_, keeping_);
    const double again = std::max(1, stage.again.together) * (attention + std::max(moe, dense)) - kept;
    const double buffers = stage.moe_layers > 0 ? std::max(0.0, moe_.buffer_bytes - MoeBytes(all())) : 0;
    const bool gathers = slice_.sequence_parallel && slice_.tensor_parallel > 1;
    const double row_bytes = slice_.tokens * model_.model_dim * slice_.bytes_per_element;
    return again + std::max(buffers, gathers ? 2 * row_bytes : 0);
  }

  const LayoutRequest& request_;
  const ModelConfig& model_;
  const LayoutPoint& point_;
  const Layout& layout_;
  const MoeMemory& moe_;
  RankSlice slice_;
  Keeping keeping_;
};

}  // namespace

RankMemory RankMemoryOf(const LayoutRequest& request, const LayoutPoint& point, const MoeMemory& moe) {
  const StageMemory memory(request, point, moe);
  RankMemory most;
  for (const Stage& stage : StagesOf(request, point.layout.pipeline_parallel)) {
    const RankMemory of_stage = memory.Of(stage);
    if (of_stage.total_bytes() > most.total_bytes()) most = of_stage;
  }
  return most;
}

}  // namespace moeplan::planner
