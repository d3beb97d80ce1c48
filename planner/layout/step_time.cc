#include "planner/layout/step_time.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "planner/layout/stages.h"

namespace moeplan::planner {
namespace {

// What is taken to hide behind compute as far as it ever can, for bounds.
enum class Hides { kAsItDoes, kGradients, kGradientsAndWeights };

// One pass, forward or backward, of a part of a layer on one micro-batch. Its length is compute_s + tensor_s + wait_s.
struct PassTime {
  double compute_s = 0;        // A MoE layer's as a whole.
  double tensor_s = 0;         // Exchanges over TP, with nothing beside them.
  double wait_s = 0;           // For other exchanges, beyond what they hide behind.
  double exchange_s = 0;       // These exchanges, hidden or not.
  double communication_s = 0;  // All communication, that inside a MoE layer too: when no gradient is sent.

  double length_s() const { return compute_s + tensor_s + wait_s; }
  PassTime& Add(const PassTime& other, double times) {
    compute_s += times * other.compute_s;
    tensor_s += times * other.tensor_s;
    wait_s += times * other.wait_s;
    exchange_s += times * other.exchange_s;
    communication_s += times * other.communication_s;
    return *this;
  }
};

struct LayerTime {
  PassTime forward, backward;

  double length_s() const { return forward.length_s() + backward.length_s(); }
  LayerTime& Add(const LayerTime& other, double times) {
    forward.Add(other.forward, times);
    backward.Add(other.backward, times);
    return *this;
  }
};

// So many times the same in a stage, and what its compute and its exchanges other than over TP are called.
struct Share {
  StepPart compute = StepPart::kBubble;
  StepPart exchange = StepPart::kBubble;
  LayerTime time;
  double times = 1;
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
    PriceLayers();
    StepTime time;
    double slowest_s = 0, once_s = 0, stage_s = 0;
    const std::vector<Stage> stages = StagesOf(model_, layout_.pipeline_parallel);
    for (size_t i = 0; i < stages.size(); ++i) {
      const Stage& stage = stages[i];
      // Most stages are like the one before them.
      if (i == 0 || !IsLike(stage, stages[i - 1])) {
        const LayerTime pass = Whole(stage, hides);
        stage_s = pass.length_s();
        if (stage_s > slowest_s) slowest_s = stage_s, slowest_ = stage;
        const double window_s = hides == Hides::kAsItDoes
                                    ? std::max(0.0, pass.backward.length_s() - pass.backward.communication_s)
                                    : std::numeric_limits<double>::infinity();
        const GradientTime gradient = GradientsOf(stage, window_s);
        if (gradient.exposed_s > gradient_.exposed_s) gradient_ = gradient;
      }
      once_s += stage_s;
    }
    const double pipeline_s = (point_.micro_batches - 1) * slowest_s + once_s;
    time.gradient_s = gradient_.exposed_s;
    time.step_s = pipeline_s + time.gradient_s;
    time.bubble = pipeline_s > 0 ? std::max(0.0, 1 - point_.micro_batches * slowest_s / pipeline_s) : 0;
    return time;
  }

  // After Price.
  PartTimes Parts(const StepTime& time) {
    PartTimes parts = {};
    double working_s = 0;
    for (const Share& share : SharesOf(slowest_, Hides::kAsItDoes)) {
      const double times = share.times * point_.micro_batches;
      const PassTime &forward = share.time.forward, &backward = share.time.backward;
      parts[share.compute].Add(forward.compute_s, backward.compute_s, forward.compute_s + backward.compute_s, times);
      parts[StepPart::kTensorExchange].Add(forward.tensor_s, backward.tensor_s, forward.tensor_s + backward.tensor_s,
                                           times);
      parts[share.exchange].Add(forward.exchange_s, backward.exchange_s, forward.wait_s + backward.wait_s, times);
      working_s += times * share.time.length_s();
    }
    parts[StepPart::kGradients] = {.backward_s = gradient_.busy_s, .exposed_s = gradient_.exposed_s};
    parts[StepPart::kBubble].exposed_s = time.step_s - gradient_.exposed_s - working_s;
    return parts;
  }

 private:
  struct GradientTime {
    double busy_s = 0;
    double exposed_s = 0;
  };

  static bool IsLike(Stage one, const Stage& other) {
    one.index = other.index;
    return one == other;
  }

  // Looks up what the stages consist of.
  void PriceLayers() {
    attention_ = Attention();
    dense_ = Dense();
    moe_layer_ = Moe();
    logits_ = Logits();
    neighbours_ = Neighbours();
  }

  // What a stage does for one micro-batch.
  std::vector<Share> SharesOf(const Stage& stage, Hides hides) {
    std::vector<Share> shares = {
        {StepPart::kAttention, StepPart::kContextExchange, attention_, static_cast<double>(stage.layers)},
        {StepPart::kDenseNetworks, StepPart::kContextExchange, dense_, static_cast<double>(stage.dense_layers())},
        {StepPart::kMoeLayers, StepPart::kContextExchange, moe_layer_, static_cast<double>(stage.moe_layers)},
        {StepPart::kLogits, StepPart::kContextExchange, logits_, stage.predicts ? 1.0 : 0.0},
        {StepPart::kNeighbours, StepPart::kNeighbours, neighbours_, 1}};
    if (request_.zero_stage == kMaxZeroStage) {
      LayerTime pass;
      for (const Share& share : shares) pass.Add(share.time, share.times);
      shares.push_back(
          {StepPart::kWeights, StepPart::kWeights, Gathers(stage, hides == Hides::kGradientsAndWeights, pass), 1});
    }
    return shares;
  }

  LayerTime Whole(const Stage& stage, Hides hides) {
    LayerTime pass;
    for (const Share& share : SharesOf(stage, hides)) pass.Add(share.time, share.times);
    return pass;
  }

  GroupShape TensorGroup() const { return ShapeOf(Group::kTensor, layout_, gpus_per_node_); }

  // Both collectives over TP that a layer's part has in a pass.
  double TensorS(bool backward) {
    const GroupShape group = TensorGroup();
    if (!request_.sequence_parallel) return book_.CollectiveS(Collective::kAllReduce, group, token_bytes_);
    const double gather_s = book_.CollectiveS(Collective::kAllGather, group, token_bytes_);
    const double scatter_s = book_.CollectiveS(Collective::kReduceScatter, group, token_bytes_);
    return (backward ? 2 : 1) * gather_s + scatter_s;
  }

  LayerTime Layer(double compute_s, double scores_s, double forward_exchange_s, double backward_exchange_s) {
    LayerTime time;
    time.forward = {.compute_s = compute_s + scores_s,
                    .tensor_s = TensorS(/*backward=*/false),
                    .wait_s = std::max(0.0, forward_exchange_s - scores_s),
                    .exchange_s = forward_exchange_s};
    time.forward.communication_s = time.forward.tensor_s + forward_exchange_s;
    time.backward = {.compute_s = 2 * (compute_s + scores_s),
                     .tensor_s = TensorS(/*backward=*/true),
                     .wait_s = std::max(0.0, backward_exchange_s - 2 * scores_s),
                     .exchange_s = backward_exchange_s};
    time.backward.communication_s = time.backward.tensor_s + backward_exchange_s;
    if (request_.recompute == Recompute::kSelective) time.backward.compute_s += scores_s;
    if (request_.recompute == Recompute::kFull) time.backward.Add(time.forward, 1);
    return time;
  }

  LayerTime Attention() {
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
    return Layer(compute_s, scores_s, there_s, there_s + back_s);
  }

  LayerTime Dense() {
    if (model_.moe_layers() == model_.layers()) return {};
    return Layer(book_.ProductS(2 * tokens_ * DenseFfnParameters(model_) / layout_.tensor_parallel), 0, 0, 0);
  }

  LayerTime Moe() const {
    LayerTime time = {.forward = {.compute_s = moe_.forward_s},
                      .backward = {.compute_s = moe_.backward_s, .communication_s = moe_.backward_communication_s}};
    if (request_.recompute == Recompute::kFull) time.backward.compute_s += moe_.forward_s;
    return time;
  }

  LayerTime Logits() {
    const double flops = 2 * tokens_ * model_.vocab * model_.model_dim / layout_.tensor_parallel;
    const double forward_s = book_.ProductS(flops);
    return {.forward = {.compute_s = forward_s}, .backward = {.compute_s = 2 * forward_s}};
  }

  // Half of an all-to-all between two ranks stays where it is, so passing n bytes on is one of 2n.
  LayerTime Neighbours() {
    if (layout_.pipeline_parallel == 1) return {};
    const double bytes = token_bytes_ / (request_.sequence_parallel ? layout_.tensor_parallel : 1);
    const double pass_s = book_.CollectiveS(Collective::kAllToAll, NeighbourStages(point_, gpus_per_node_), 2 * bytes);
    const PassTime pass = {.wait_s = pass_s, .exchange_s = pass_s, .communication_s = pass_s};
    return {.forward = pass, .backward = pass};
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

  GradientTime GradientsOf(const Stage& stage, double window_s) {
    const bool cuts = request_.zero_stage > 0;
    const double slice_s = SliceS(cuts ? Collective::kReduceScatter : Collective::kAllReduce, stage);
    const double hidden_s = stage.layers > 1 ? window_s * (stage.layers - 1) / stage.layers : 0;
    const double all_s = stage.layers * slice_s;
    const bool gathers_after = cuts && request_.zero_stage < kMaxZeroStage;
    const double gathers_s = gathers_after ? stage.layers * SliceS(Collective::kAllGather, stage) : 0;
    return {.busy_s = all_s + gathers_s, .exposed_s = std::max(slice_s, all_s - hidden_s) + gathers_s};
  }

  // ZeRO-3: each pass gathers a layer's weights while the one before it runs.
  LayerTime Gathers(const Stage& stage, bool hides, const LayerTime& pass) {
    const double slice_s = SliceS(Collective::kAllGather, stage), all_s = stage.layers * slice_s;
    const auto beside = [&](double beside_s) {
      return PassTime{.wait_s = hides ? slice_s : std::max(slice_s, all_s - beside_s),
                      .exchange_s = all_s,
                      .communication_s = all_s};
    };
    return {.forward = beside(pass.forward.length_s()),
            .backward = beside(std::max(0.0, pass.backward.length_s() - pass.backward.communication_s))};
  }

  const LayoutRequest& request_;
  const ModelConfig& model_;
  const LayoutPoint& point_;
  const Layout& layout_;
  const MoeTime& moe_;
  CostBook& book_;
  int gpus_per_node_;
  double tokens_, token_bytes_;
  LayerTime attention_, dense_, moe_layer_, logits_, neighbours_;
  Stage slowest_;
  GradientTime gradient_;
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

std::string_view Name(StepPart part) {
  constexpr std::string_view kNames[kStepParts] = {"attention",      "denseNetworks",   "moeLayers",        "logits",
                                                   "tensorExchange", "contextExchange", "pipelineExchange", "weights",
                                                   "gradients",      "bubble"};
  return kNames[static_cast<size_t>(part)];
}

StepTime PriceStep(const LayoutRequest& request, const LayoutPoint& point, const MoeTime& moe, CostBook& book) {
  return StepPricer(request, point, moe, book).Price(Hides::kAsItDoes);
}

StepParts PriceStepParts(const LayoutRequest& request, const LayoutPoint& point, const MoeTime& moe, CostBook& book) {
  StepPricer pricer(request, point, moe, book);
  const StepTime time = pricer.Price(Hides::kAsItDoes);
  return {time, pricer.Parts(time)};
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
