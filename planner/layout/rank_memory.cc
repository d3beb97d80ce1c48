#include "planner/layout/rank_memory.h"

#include <algorithm>

#include "models/memory/activations.h"
#include "models/memory/weights.h"
#include "planner/layout/stages.h"

namespace moeplan::planner {
namespace {

class StageMemory {
 public:
  StageMemory(const LayoutRequest& request, const LayoutPoint& point, const MoeMemory& moe)
      : request_(request),
        model_(request.model),
        point_(point),
        layout_(point.layout),
        moe_(moe),
        tokens_(TokensOf(point, request.sequence_length)),
        saving_{.tensor_parallel = layout_.tensor_parallel,
                .sequence_parallel = request.sequence_parallel,
                .recompute = request.recompute,
                .stores_scores = request.attention == AttentionKernel::kStored,
                .bytes_per_element = request.bytes_per_element} {}

  RankMemory Of(const Stage& stage) const {
    const double on_their_way = std::min(point_.micro_batches, layout_.pipeline_parallel - stage.index);
    const double kept = stage.layers * AttentionBytes(saving_) + stage.dense_layers() * DenseBytes(saving_) +
                        stage.moe_layers * MoeBytes(saving_);
    RankMemory memory = {
        .kept_bytes = on_their_way * kept, .running_bytes = RunningBytes(stage), .logit_bytes = LogitBytes(stage)};
    AddStates(stage, memory);
    return memory;
  }

 private:
  double dense_replicas() const { return 1.0 * layout_.context_parallel * layout_.data_parallel; }
  int expert_ranks() const { return layout_.expert_parallel * layout_.expert_sharding_parallel; }

  void AddStates(const Stage& stage, RankMemory& memory) const {
    const double dense = StageDenseParameters(model_, stage) / layout_.tensor_parallel;
    const double experts = StageExpertParameters(model_, stage) / expert_ranks();
    const double expert_replicas = dense_replicas() * layout_.tensor_parallel / expert_ranks();
    for (const auto& [parameters, replicas] : {std::pair(dense, dense_replicas()), {experts, expert_replicas}}) {
      const TrainingState state =
          TrainingStateOf(parameters, replicas, request_.zero_stage, request_.bytes_per_element);
      memory.weight_bytes += state.weight_bytes;
      memory.gradient_bytes += state.gradient_bytes;
      memory.optimizer_bytes += state.optimizer_bytes;
      if (request_.zero_stage < kMaxZeroStage) continue;
      memory.weight_bytes += request_.bytes_per_element * parameters * (1 - 1 / replicas) / stage.layers;
    }
  }

  double AttentionBytes(const ActivationSaving& saving) const {
    return AttentionActivationBytes({.tokens = tokens_,
                                     .keys = static_cast<double>(request_.sequence_length),
                                     .model_dim = model_.model_dim,
                                     .heads = model_.heads,
                                     .projected_dim = WidthsOf(model_).projected},
                                    saving);
  }

  double FeedForward(double copies, int shards, double hidden_dim, const ActivationSaving& saving) const {
    return FeedForwardActivationBytes({.tokens = tokens_,
                                       .copies = copies,
                                       .shards = shards,
                                       .model_dim = model_.model_dim,
                                       .hidden_dim = hidden_dim,
                                       .matrices = model_.ffn_matrices()},
                                      saving);
  }
  double DenseBytes(const ActivationSaving& saving) const {
    return FeedForward(1, layout_.tensor_parallel, model_.dense_hidden_dim, saving);
  }
  double MoeBytes(const ActivationSaving& saving) const {
    const double least = model_.top_k * std::min(1.0, request_.capacity_factor);
    const double routed = FeedForward(moe_.copies < 0 ? least : moe_.copies, layout_.expert_sharding_parallel,
                                      model_.expert_hidden_dim, saving);
    const double shared =
        model_.shared_hidden_dim > 0 ? FeedForward(1, layout_.tensor_parallel, model_.shared_hidden_dim, saving) : 0;
    return routed + shared;
  }

  double RunningBytes(const Stage& stage) const {
    ActivationSaving all = saving_;
    all.recompute = Recompute::kNone;
    const double attention = AttentionBytes(all) - AttentionBytes(saving_);
    const double buffers = stage.moe_layers > 0 ? std::max(0.0, moe_.buffer_bytes - MoeBytes(saving_)) : 0;
    return attention + buffers;
  }

  double LogitBytes(const Stage& stage) const {
    return stage.predicts ? 4.0 * tokens_ * model_.vocab / layout_.tensor_parallel : 0;
  }

  const LayoutRequest& request_;
  const ModelConfig& model_;
  const LayoutPoint& point_;
  const Layout& layout_;
  const MoeMemory& moe_;
  double tokens_;
  ActivationSaving saving_;
};

}  // namespace

RankMemory RankMemoryOf(const LayoutRequest& request, const LayoutPoint& point, const MoeMemory& moe) {
  const StageMemory memory(request, point, moe);
  RankMemory most;
  for (const Stage& stage : StagesOf(request.model, point.layout.pipeline_parallel)) {
    const RankMemory of_stage = memory.Of(stage);
    if (of_stage.total_bytes() > most.total_bytes()) most = of_stage;
  }
  return most;
}

}  // namespace moeplan::planner
