#include "planner/layout/step_time.h"

#include <algorithm>
#include <array>
#include <limits>

#include "planner/layout/stages.h"

namespace moeplan::planner {
namespace {

// What is taken to hide behind compute as far as it ever can, for bounds.
enum class Hides { kAsItDoes, kGradients, kGradientsAndWeights };

// Of a part of a layer, or a stage, on one micro-batch.
struct PassTime {
  double forward_s = 0;
  double backward_s = 0;
  double backward_communication_s = 0;  // Part of backward_s.

  PassTime& Add(const PassTime& other, double times) {
    forward_s += times * other.forward_s;
    backward_s += times * other.backward_s;
    backward_communication_s += times * other.backward_communication_s;
    return *this;
  }
  double total_s() const { return forward_s + backward_s; }
};

class StepPricer {
 public:
  StepPricer(const LayoutRequest& request, const LayoutPoint& point, const MoeTime& moe, CostBook& book)
      : request_(request),
        model_(request.model),
        point_(point),
        layout_(point.layout),
        moe_(moe),
        book_(book),
        gpus_per_node_(book.gpus_per_node()),
        tokens_(TokensOf(point, request.sequence_length)),
        token_bytes_(tokens_ * model_.model_dim * request.bytes_per_element) {}

  // What hides all but one slice of it does.
  StepTime Price(Hides hides) {
    const PassTime attention = Attention(), dense = Dense(), moe = Moe(), neighbours = Neighbours();
    StepTime time;
    double slowest_s = 0, once_s = 0;
    for (const Stage& stage : StagesOf(model_, layout_.pipeline_parallel)) {
      PassTime pass;
      pass.Add(attention, stage.layers).Add(dense, stage.dense_layers()).Add(moe, stage.moe_layers);
      if (stage.predicts) pass.Add(Logits(), 1);
      pass.Add(neighbours, 1);
      if (request_.zero_stage == kMaxZeroStage) AddGathers(stage, hides == Hides::kGradientsAndWeights, pass);
      slowest_s = std::max(slowest_s, pass.total_s());
      once_s += pass.total_s();
      const double window_s = hides == Hides::kAsItDoes ? std::max(0.0, pass.backward_s - pass.backward_communication_s)
                                                        : std::numeric_limits<double>::infinity();
      time.gradient_s = std::max(time.gradient_s, GradientS(stage, window_s));
    }
    const double pipeline_s = (point_.micro_batches - 1) * slowest_s + once_s;
    time.step_s = pipeline_s + time.gradient_s;
    time.bubble = pipeline_s > 0 ? std::max(0.0, 1 - point_.micro_batches * slowest_s / pipeline_s) : 0;
    return time;
  }

 private:
  GroupShape TensorGroup() const { return ShapeOf(Group::kTensor, layout_, gpus_per_node_); }

  // Both collectives over TP that a layer's part has in a pass.
  double TensorS(bool backward) {
    const GroupShape group = TensorGroup();
    if (!request_.sequence_parallel) return book_.CollectiveS(Collective::kAllReduce, group, token_bytes_);
    const double gather_s = book_.CollectiveS(Collective::kAllGather, group, token_bytes_);
    const double scatter_s = book_.CollectiveS(Collective::kReduceScatter, group, token_bytes_);
    return (backward ? 2 : 1) * gather_s + scatter_s;
  }

  PassTime Pass(double compute_s, double scores_s, double forward_exchange_s, double backward_exchange_s) {
    PassTime pass;
    const double forward_tensor_s = TensorS(/*backward=*/false);
    const double forward_wait_s = std::max(0.0, forward_exchange_s - scores_s);
    pass.forward_s = compute_s + scores_s + forward_tensor_s + forward_wait_s;
    const double backward_wait_s = std::max(0.0, backward_exchange_s - 2 * scores_s);
    pass.backward_communication_s = TensorS(/*backward=*/true) + std::max(backward_exchange_s, 0.0);
    pass.backward_s = 2 * (compute_s + scores_s) + TensorS(/*backward=*/true) + backward_wait_s;
    if (request_.recompute == Recompute::kSelective) pass.backward_s += scores_s;
    if (request_.recompute == Recompute::kFull) {
      pass.backward_s += pass.forward_s;
      pass.backward_communication_s += forward_tensor_s + forward_exchange_s;
    }
    return pass;
  }

  PassTime Attention() {
    const AttentionWidths widths = WidthsOf(model_);
    const double tensor = layout_.tensor_parallel;
    const double compute_s = book_.ProductS(2 * tokens_ * AttentionParameters(model_) / tensor);
    const double scores_s =
        book_.ProductS(2 * tokens_ * request_.sequence_length * (widths.query_key + widths.value) / tensor);
    // A tensor-parallel rank has at least one head's keys and values.
    const double ranks = model_.latent_attention.kv_rank > 0 ? tensor : std::min<double>(tensor, model_.kv_heads);
    const double all_keys_bytes =
        tokens_ * layout_.context_parallel * widths.passed / ranks * request_.bytes_per_element;
    const GroupShape contexts = ContextGroup(point_, gpus_per_node_);
    const double there_s = book_.CollectiveS(Collective::kAllGather, contexts, all_keys_bytes);
    const double back_s = book_.CollectiveS(Collective::kReduceScatter, contexts, all_keys_bytes);
    return Pass(compute_s, scores_s, there_s, there_s + back_s);
  }

  PassTime Dense() {
    if (model_.moe_layers() == model_.layers()) return {};
    return Pass(book_.ProductS(2 * tokens_ * DenseFfnParameters(model_) / layout_.tensor_parallel), 0, 0, 0);
  }

  PassTime Moe() const {
    PassTime pass = {moe_.forward_s, moe_.backward_s, moe_.backward_communication_s};
    if (request_.recompute == Recompute::kFull) pass.backward_s += moe_.forward_s;
    return pass;
  }

  PassTime Logits() {
    const double flops = 2 * tokens_ * model_.vocab * model_.model_dim / layout_.tensor_parallel;
    const double forward_s = book_.ProductS(flops);
    return {.forward_s = forward_s, .backward_s = 2 * forward_s};
  }

  // Half of an all-to-all between two ranks stays where it is, so passing n bytes on is one of 2n.
  PassTime Neighbours() {
    if (layout_.pipeline_parallel == 1) return {};
    const double bytes = token_bytes_ / (request_.sequence_parallel ? layout_.tensor_parallel : 1);
    const double pass_s = book_.CollectiveS(Collective::kAllToAll, NeighbourStages(point_, gpus_per_node_), 2 * bytes);
    return {.forward_s = pass_s, .backward_s = pass_s, .backward_communication_s = pass_s};
  }

  struct Replicated {
    double bytes = 0;
    GroupShape replicas;
  };
  // Weights, or gradients, of a rank's share of the stage.
  std::array<Replicated, 2> Shares(const Stage& stage) const {
    const double element = request_.bytes_per_element;
    const double expert_ranks = static_cast<double>(layout_.expert_parallel) * layout_.expert_sharding_parallel;
    return {{{StageDenseParameters(model_, stage) / layout_.tensor_parallel * element,
              DenseReplicas(point_, gpus_per_node_)},
             {StageExpertParameters(model_, stage) / expert_ranks * element, ExpertReplicas(point_, gpus_per_node_)}}};
  }
  // Of one slice a layer.
  double SliceS(Collective collective, const Stage& stage) {
    double slice_s = 0;
    for (const Replicated& share : Shares(stage)) {
      slice_s += book_.CollectiveS(collective, share.replicas, share.bytes / stage.layers);
    }
    return slice_s;
  }

  double GradientS(const Stage& stage, double window_s) {
    const bool cuts = request_.zero_stage > 0;
    const double slice_s = SliceS(cuts ? Collective::kReduceScatter : Collective::kAllReduce, stage);
    const double hidden_s = stage.layers > 1 ? window_s * (stage.layers - 1) / stage.layers : 0;
    const double after_s = std::max(slice_s, stage.layers * slice_s - hidden_s);
    const bool gathers_after = cuts && request_.zero_stage < kMaxZeroStage;
    return after_s + (gathers_after ? stage.layers * SliceS(Collective::kAllGather, stage) : 0);
  }

  // ZeRO-3: each pass gathers a layer's weights while the one before it runs.
  void AddGathers(const Stage& stage, bool hides, PassTime& pass) {
    const double slice_s = SliceS(Collective::kAllGather, stage);
    const auto wait_s = [&](double beside_s) {
      return hides ? slice_s : std::max(slice_s, stage.layers * slice_s - beside_s);
    };
    const double backward_compute_s = std::max(0.0, pass.backward_s - pass.backward_communication_s);
    pass.forward_s += wait_s(pass.forward_s);
    pass.backward_s += wait_s(backward_compute_s);
    pass.backward_communication_s += stage.layers * slice_s;
  }

  const LayoutRequest& request_;
  const ModelConfig& model_;
  const LayoutPoint& point_;
  const Layout& layout_;
  const MoeTime& moe_;
  CostBook& book_;
  int gpus_per_node_;
  double tokens_, token_bytes_;
};

MoeTime ExpertFlopsTime(const LayoutRequest& request, const LayoutPoint& point, const CostBook& book) {
  const ModelConfig& model = request.model;
  if (model.moe_layers() == 0) return {};
  const double copies = model.top_k * std::min(1.0, request.capacity_factor);
  const double flops = 2 * TokensOf(point, request.sequence_length) *
                       (copies * ExpertParameters(model) + SharedExpertParameters(model)) /
                       point.layout.tensor_parallel;
  const double forward_s = book.ProductsAtLeastS(flops);
  return {.forward_s = forward_s, .backward_s = 2 * forward_s};
}

}  // namespace

StepTime PriceStep(const LayoutRequest& request, const LayoutPoint& point, const MoeTime& moe, CostBook& book) {
  return StepPricer(request, point, moe, book).Price(Hides::kAsItDoes);
}

double LeastStepS(const LayoutRequest& request, const LayoutPoint& point, double least_moe_s, CostBook& book) {
  const MoeTime flops = ExpertFlopsTime(request, point, book);
  const double least_s = StepPricer(request, point, flops, book).Price(Hides::kGradients).step_s;
  if (least_moe_s <= flops.forward_s + flops.backward_s) return least_s;
  // Which pass the rest of it belongs to is not known, and so neither what ZeRO-3's gathers hide behind.
  const MoeTime longer = {.forward_s = flops.forward_s, .backward_s = least_moe_s - flops.forward_s};
  return std::max(least_s, StepPricer(request, point, longer, book).Price(Hides::kGradientsAndWeights).step_s);
}

double ModelFlopsUtilisation(const LayoutRequest& request, double step_s, double peak_flops_per_s) {
  if (peak_flops_per_s <= 0) return 0;
  const double tokens = static_cast<double>(request.global_batch) * request.sequence_length;
  const double flops = 3 * ModelFlopsPerToken(request.model, request.sequence_length) * tokens;
  return flops / (step_s * request.gpus * peak_flops_per_s);
}

}  // namespace moeplan::planner
