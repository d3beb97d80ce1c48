#include "planner/layout/step_time.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "models/step/layer_work.h"
#include "models/step/two_batches.h"
#include "planner/layout/stages.h"

namespace moeplan::planner {
namespace {

// Whether gradients hide as far as they do, or, for bounds, all but one slice of them.
enum class Gradients { kAsTheyHide, kHidden };

// One pass, forward or backward, of a part of a layer on one micro-batch. Its length is compute_s + tensor_wait_s +
// wait_s - hidden_s.
struct PassTime {
  double compute_s = 0;        // A MoE layer's as a whole,
  double inside_s = 0;         // and exchanges of rows within it.
  double tensor_s = 0;         // Exchanges over TP,
  double tensor_wait_s = 0;    // and for them, beyond what they hide behind.
  double wait_s = 0;           // For other exchanges, beyond what they hide behind.
  double exchange_s = 0;       // These exchanges, hidden or not.
  double communication_s = 0;  // All communication, that inside a MoE layer too: when no gradient is sent.
  double launches = 0;         // By the host, of kernels and collectives.
  double hidden_s = 0;         // By Lancet's passes, of all of these.

  double length_s() const { return compute_s + tensor_wait_s + wait_s - hidden_s; }
  PassTime& Add(const PassTime& other, double times) {
    compute_s += times * other.compute_s;
    inside_s += times * other.inside_s;
    tensor_s += times * other.tensor_s;
    tensor_wait_s += times * other.tensor_wait_s;
    wait_s += times * other.wait_s;
    exchange_s += times * other.exchange_s;
    communication_s += times * other.communication_s;
    launches += times * other.launches;
    hidden_s += times * other.hidden_s;
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
  StepPricer(const LayoutRequest& request, const LayoutPoint& point, const MoeTime& moe, CostBook& book,
             std::span<const StageGain> gains = {})
      : request_(request),
        model_(request.model),
        point_(point),
        layout_(point.layout),
        moe_(moe),
        book_(book),
        gains_(gains),
        gpus_per_node_(book.gpus_per_node()),
        tokens_(TokensOf(point, request.sequence_length)),
        token_bytes_(tokens_ * model_.model_dim * request.bytes_per_element),
        slice_(SliceOf(request, point)) {}

  StepTime Price(Gradients gradients) {
    PriceLayers();
    StepTime time;
    // slowest_s is all micro-batches of the slowest stage, slowest_once_s one of them, once_s one through all stages;
    // stage_s is one through this stage alone, pair_s one beside another micro-batch.
    double slowest_s = 0, slowest_once_s = 0, once_s = 0, stage_s = 0, pair_s = 0, sends_s = 0;
    const std::vector<Stage> stages = StagesOf(request_, layout_.pipeline_parallel);
    for (size_t i = 0; i < stages.size(); ++i) {
      const Stage& stage = stages[i];
      // Most stages are like the one before them.
      if (i == 0 || !IsLike(stage, stages[i - 1]) || !(GainOf(stage) == GainOf(stages[i - 1]))) {
        const LayerTime pass = Whole(stage);
        const double host_s = HostS(pass);
        stage_s = std::max(pass.length_s(), host_s);
        pair_s = std::max(pass.length_s() - HiddenS(stage), host_s);
        sends_s = std::min(HiddenSendsS(stage, pass), pair_s - host_s);
        const double window_s = gradients == Gradients::kAsTheyHide
                                    ? std::max(0.0, pass.backward.length_s() - pass.backward.communication_s)
                                    : std::numeric_limits<double>::infinity();
        const UpdateTime update = {.gradients = GradientsOf(stage, window_s), .optimizer_s = OptimizerS(stage)};
        if (update.exposed_s() > update_.exposed_s()) update_ = update;
      }
      once_s += stage_s;
      const double of_experts_s = PairsOf(stage) * (stage_s - pair_s);
      const double of_sends_s = (point_.micro_batches - 1) * sends_s;
      const double all_s = point_.micro_batches * stage_s - of_experts_s - of_sends_s;
      if (all_s > slowest_s) {
        slowest_s = all_s, slowest_once_s = stage_s, slowest_ = stage;
        hidden_experts_s_ = of_experts_s, hidden_sends_s_ = of_sends_s;
      }
    }
    // Virtual stages fill and drain the pipeline in shorter passes.
    const double pipeline_s = slowest_s + (once_s - slowest_once_s) / request_.virtual_stages;
    time.gradient_s = update_.gradients.exposed_s;
    time.step_s = pipeline_s + update_.exposed_s();
    time.bubble = pipeline_s > 0 ? std::max(0.0, 1 - slowest_s / pipeline_s) : 0;
    return time;
  }

  // After Price.
  PartTimes Parts(const StepTime& time) {
    PartTimes parts = {};
    double working_s = 0;
    for (const Share& share : SharesOf(slowest_)) {
      const double times = share.times * point_.micro_batches;
      const PassTime &forward = share.time.forward, &backward = share.time.backward;
      parts[share.compute].Add(forward.compute_s, backward.compute_s, forward.compute_s + backward.compute_s, times);
      parts[share.compute].exposed_s -= times * (forward.hidden_s + backward.hidden_s);
      parts[StepPart::kTensorExchange].Add(forward.tensor_s, backward.tensor_s,
                                           forward.tensor_wait_s + backward.tensor_wait_s, times);
      parts[share.exchange].Add(forward.exchange_s, backward.exchange_s, forward.wait_s + backward.wait_s, times);
      working_s += times * share.time.length_s();
    }
    const LayerTime pass = Whole(slowest_);
    const double host_s = HostS(pass), more_s = std::max(0.0, host_s - pass.length_s());
    const double launches = pass.forward.launches + pass.backward.launches;
    if (launches > 0) {
      parts[StepPart::kHost].Add(host_s * pass.forward.launches / launches, host_s * pass.backward.launches / launches,
                                 more_s, point_.micro_batches);
    }
    working_s += more_s * point_.micro_batches - hidden_experts_s_ - hidden_sends_s_;
    parts[StepPart::kMoeLayers].exposed_s -= hidden_experts_s_;
    parts[StepPart::kNeighbours].exposed_s -= hidden_sends_s_;
    parts[StepPart::kGradients] = {.backward_s = update_.gradients.busy_s, .exposed_s = update_.gradients.exposed_s};
    parts[StepPart::kOptimizer] = {.backward_s = update_.optimizer_s, .exposed_s = update_.optimizer_s};
    parts[StepPart::kBubble].exposed_s = time.step_s - update_.exposed_s() - working_s;
    return parts;
  }

  // After Price.
  StageGain Hidden() const {
    const StageGain one = GainOf(slowest_);
    const double all = point_.micro_batches;
    return {all * one.ranges_s, all * one.weight_gradients_s, all * one.more_launches, one.more_bytes};
  }

  // After Price.
  std::optional<OverlappedLayers> Overlap() const {
    const int layers = ExpertLayersOf(slowest_);
    if (!request_.overlaps_experts || layers == 0) return std::nullopt;
    return OverlappedLayers{.layer = halves_,
                            .layer_alone_s = expert_layer_s_,
                            .layers = layers,
                            .passes = request_.virtual_stages,
                            .delays_weight_gradients = request_.delays_weight_gradients,
                            .micro_batches = point_.micro_batches,
                            .pairs = PairsOf(slowest_),
                            .hidden_s = hidden_experts_s_};
  }

 private:
  struct GradientTime {
    double busy_s = 0;
    double exposed_s = 0;
  };
  // After the last backward pass.
  struct UpdateTime {
    GradientTime gradients;
    double optimizer_s = 0;
    double exposed_s() const { return gradients.exposed_s + optimizer_s; }
  };

  static bool IsLike(Stage one, const Stage& other) {
    one.index = other.index;
    return one == other;
  }

  // Returns by how much a micro-batch's way there and back through a stage is shorter beside another micro-batch than
  // after it.
  double HiddenS(const Stage& stage) const {
    const int layers = ExpertLayersOf(stage);
    if (!request_.overlaps_experts || layers == 0) return 0;
    return moeplan::HiddenS(halves_, expert_layer_s_, layers, request_.virtual_stages,
                            request_.delays_weight_gradients);
  }

  // Returns how much of what a micro-batch sends to neighbouring stages runs beside what other micro-batches compute.
  // Ranks with several stages have such a pass at any time, and frameworks let the two run at once (Megatron's
  // overlap_p2p_comm, which is on by default); a rank with one stage waits. Compute that hides exchanges of experts
  // hides no sends, and exchanges hide none: they may need the same links.
  double HiddenSendsS(const Stage& stage, const LayerTime& pass) {
    if (request_.virtual_stages == 1) return 0;
    double sends_s = 0;
    for (const Share& share : SharesOf(stage)) {
      if (share.exchange == StepPart::kNeighbours) sends_s += share.times * share.time.length_s();
    }
    double free_s = -HiddenS(stage);
    for (const PassTime& one : {pass.forward, pass.backward}) free_s += one.compute_s - one.inside_s;
    return std::clamp(free_s, 0.0, sends_s);
  }

  int ExpertLayersOf(const Stage& stage) const {
    return stage.moe_layers + (NextTokenLayersHaveExperts(model_) ? stage.next_tokens : 0);
  }

  // Micro-batches that go forward beside another on its way back: all but those with which a rank warms up, of which
  // interleaved stages have more (Megatron's schedule).
  double PairsOf(const Stage& stage) const {
    const int after = layout_.pipeline_parallel - stage.index - 1, rounds = request_.virtual_stages;
    const double warming = (2.0 * after + (rounds - 1.0) * layout_.pipeline_parallel + 1) / rounds;
    return std::max(0.0, point_.micro_batches - warming);
  }

  // Splits a layer with experts into what the stream of compute and that of exchanges have to do.
  void SplitExpertLayer() {
    const auto windowed = static_cast<double>(std::ranges::count(model_.windowed_layer, true));
    const double share = windowed / model_.layers();
    LayerTime around;
    around.Add(attention_.compute, 1 - share).Add(attention_.moved, 1 - share);
    around.Add(windowed_attention_.compute, share).Add(windowed_attention_.moved, share);
    around.Add(around_experts_.compute, 1).Add(around_experts_.moved, 1);
    LayerTime experts;
    experts.Add(shared_experts_.compute, 1).Add(shared_experts_.moved, 1);
    expert_layer_s_ = around.length_s() + experts.length_s() + moe_layer_.length_s();
    HalfLayers& halves = halves_;
    halves.attention_weights_s = (1 - share) * attention_.weights_s + share * windowed_attention_.weights_s;
    halves.experts_weights_s = moe_.weight_gradient_s + shared_experts_.weights_s;
    halves.attention_forward_s = around.forward.length_s();
    halves.attention_backward_s = around.backward.length_s() - halves.attention_weights_s;
    halves.experts_forward_s = experts.forward.length_s() + moe_.forward_rest_s;
    const double again_s = moe_layer_.backward.compute_s - moe_.backward_s;
    halves.experts_backward_s =
        experts.backward.length_s() - shared_experts_.weights_s + moe_.backward_rest_s + again_s;
    halves.dispatch_s = halves.combine_s = moe_.forward_exchange_s / 2;
    halves.dispatch_back_s = halves.combine_back_s = moe_.backward_exchange_s / 2;
    halves.compute_slowdown = book_.SlowdownBesideExchange(request_.dispatcher);
  }

  // Looks up what the stages consist of.
  void PriceLayers() {
    const auto windowed = std::ranges::count(model_.windowed_layer, true);
    if (windowed < model_.layers() || request_.next_tokens > 0) attention_ = Attention(/*window=*/0);
    if (windowed > 0) windowed_attention_ = Attention(model_.window);
    if (model_.moe_layers() < model_.layers()) {
      dense_ = Block(StepPart::kDenseNetworks, DenseBlockWork(model_, slice_));
      AddTensorExchange(dense_, SelectsAgain(request_, RecomputeModule::kMlp));
    }
    if (model_.moe_layers() > 0) {
      around_experts_ = Block(StepPart::kElementwise, AroundExpertsWork(model_, slice_));
      if (model_.shared_hidden_dim > 0 && !request_.overlaps_shared_experts) {
        shared_experts_ = Block(StepPart::kSharedExperts, SharedExpertWork(model_, slice_));
        AddTensorExchange(shared_experts_, SelectsAgain(request_, RecomputeModule::kSharedExperts));
      }
    }
    moe_layer_ = Moe();
    embedding_ = Block(StepPart::kElementwise, EmbeddingWork(model_, slice_));
    head_ = Block(StepPart::kLogits, HeadWork(model_, slice_));
    if (request_.next_tokens > 0) {
      join_ = Block(StepPart::kLogits, JoinWork(model_, slice_));
      AddTensorExchange(join_, /*again=*/false, kJoinedWidth);
    }
    AddVocabularyExchanges();
    neighbours_ = Neighbours();
    if (request_.overlaps_experts) SplitExpertLayer();
  }

  // A block's products, and what moves memory around them.
  struct BlockTime {
    StepPart part = StepPart::kAttention;
    LayerTime compute, moved, loss;
    double scores_forward_s = 0, scores_backward_s = 0;
    double weights_s = 0;  // Of the backward pass: gradients of weights.
  };

  // A layer's; `window`: what a token sees, 0: all before it.
  BlockTime Attention(int window) {
    RankSlice slice = slice_;
    slice.window = window;
    BlockTime time = Block(StepPart::kAttention, AttentionBlockWork(model_, slice));
    AddTensorExchange(time);
    AddContextExchange(time);
    return time;
  }

  BlockTime Block(StepPart part, const BlockWork& work) {
    BlockTime time = {.part = part};
    const auto again = [&](const auto& work) { return work.module && SelectsAgain(request_, *work.module); };
    for (const LinearWork& linear : work.linears) {
      const double forward_s = book_.LinearS(Kernel::kLinear, linear);
      time.compute.forward.compute_s += forward_s;
      if (again(linear)) time.compute.backward.compute_s += forward_s, time.compute.backward.launches += 1;
      time.compute.backward.compute_s += book_.LinearS(Kernel::kLinearInputGradient, linear);
      const double weights_s = book_.LinearS(Kernel::kLinearWeightGradient, linear);
      time.compute.backward.compute_s += weights_s, time.weights_s += weights_s;
      time.compute.forward.launches += 1, time.compute.backward.launches += 2;
    }
    if (work.attention) {
      time.scores_forward_s = book_.AttentionS(Kernel::kAttention, *work.attention);
      time.scores_backward_s = book_.AttentionS(Kernel::kAttentionGradient, *work.attention);
      time.compute.forward.compute_s += time.scores_forward_s;
      time.compute.backward.compute_s += time.scores_backward_s;
      time.compute.forward.launches += 1, time.compute.backward.launches += 1;
      if (SelectsAgain(request_, RecomputeModule::kCoreAttention)) {
        time.compute.backward.compute_s += time.scores_forward_s;
        time.compute.backward.launches += 1;
      }
    }
    for (const MovedWork& moved : work.moved) {
      LayerTime& into = moved.kernel == Kernel::kCrossEntropy ? time.loss : time.moved;
      const double forward_s = book_.MovedS(moved.kernel, moved.forward_bytes, moved.forward_launches);
      into.forward.compute_s += forward_s;
      if (again(moved)) into.backward.compute_s += forward_s, into.backward.launches += moved.forward_launches;
      into.backward.compute_s += book_.MovedS(moved.kernel, moved.backward_bytes, moved.backward_launches);
      into.forward.launches += moved.forward_launches, into.backward.launches += moved.backward_launches;
    }
    return time;
  }

  // So many times, of which so many are computed again before their backward pass.
  static void AddShare(const Share& share, double times, double again, std::vector<Share>& shares) {
    if (times <= 0) return;
    shares.push_back(share);
    shares.back().times = times;
    shares.back().time.backward.Add(share.time.forward, again / times);
  }
  static void AddShares(const BlockTime& block, double times, double again, std::vector<Share>& shares) {
    AddShare({block.part, StepPart::kContextExchange, block.compute}, times, again, shares);
    AddShare({StepPart::kElementwise, StepPart::kElementwise, block.moved}, times, again, shares);
    AddShare({StepPart::kLoss, StepPart::kLoss, block.loss}, times, again, shares);
  }

  // What a stage does for one micro-batch.
  std::vector<Share> SharesOf(const Stage& stage) {
    std::vector<Share> shares;
    const Stage::Again& again = stage.again;
    const bool experts_next = NextTokenLayersHaveExperts(model_);
    const int next = stage.next_tokens, moe_next = experts_next ? next : 0,
              moe_again = experts_next ? again.next_tokens : 0;
    const double moe_layers = stage.moe_layers + moe_next, moe_layers_again = again.moe_layers + moe_again;
    const double experts_again = SelectsAgain(request_, RecomputeModule::kMoe) ? moe_layers : moe_layers_again;
    AddShares(attention_, stage.layers - stage.windowed_layers + next,
              again.layers - again.windowed_layers + again.next_tokens, shares);
    AddShares(windowed_attention_, stage.windowed_layers, again.windowed_layers, shares);
    AddShares(dense_, stage.layers + next - moe_layers, again.layers + again.next_tokens - moe_layers_again, shares);
    AddShares(around_experts_, moe_layers, moe_layers_again, shares);
    AddShares(shared_experts_, moe_layers, moe_layers_again, shares);
    AddShare({StepPart::kMoeLayers, StepPart::kContextExchange, moe_layer_}, moe_layers, experts_again, shares);
    // Each further token is looked up, and predicted from the whole vocabulary.
    AddShares(join_, next, 0, shares);
    AddShares(embedding_, (stage.embeds ? 1.0 : 0.0) + next, 0, shares);
    AddShares(head_, stage.predicts ? 1.0 + next : 0.0, 0, shares);
    AddShare({StepPart::kNeighbours, StepPart::kNeighbours, neighbours_}, request_.virtual_stages, 0, shares);
    AddHidden(GainOf(stage), shares);
    if (request_.zero_stage == kMaxZeroStage) {
      LayerTime pass;
      for (const Share& share : shares) pass.Add(share.time, share.times);
      AddShare({StepPart::kWeights, StepPart::kWeights, Gathers(stage, pass)}, 1, 0, shares);
    }
    return shares;
  }

  StageGain GainOf(const Stage& stage) const {
    return gains_.empty() ? StageGain() : gains_[static_cast<size_t>(stage.index)];
  }

  // Takes what Lancet's passes hide off the exchanges of the stage's shares.
  void AddHidden(const StageGain& gain, std::vector<Share>& shares) const {
    if (gain == StageGain()) return;
    LayerTime of_experts, of_tensor, of_contexts, of_neighbours;
    of_experts.forward.launches = gain.more_launches;
    of_experts.backward.hidden_s = gain.weight_gradients_s;
    double experts_s = 0, tensor_s = 0, contexts_s = 0, neighbours_s = 0;
    for (const Share& share : shares) {
      if (share.compute == StepPart::kMoeLayers) experts_s += share.times * moe_.forward_exchange_s;
      tensor_s += share.times * share.time.forward.tensor_wait_s;
      if (share.exchange == StepPart::kContextExchange) contexts_s += share.times * share.time.forward.wait_s;
      const bool sends = share.exchange == StepPart::kNeighbours && request_.virtual_stages == 1;
      if (sends) neighbours_s += share.times * share.time.forward.wait_s;
    }
    const double all_s = experts_s + tensor_s + contexts_s + neighbours_s;
    const double of_each = all_s > 0 ? gain.ranges_s / all_s : 0;
    of_experts.forward.hidden_s = all_s > 0 ? of_each * experts_s : gain.ranges_s;
    of_tensor.forward.hidden_s = of_each * tensor_s;
    of_contexts.forward.hidden_s = of_each * contexts_s;
    of_neighbours.forward.hidden_s = of_each * neighbours_s;
    AddShare({StepPart::kMoeLayers, StepPart::kMoeLayers, of_experts}, 1, 0, shares);
    AddShare({StepPart::kTensorExchange, StepPart::kTensorExchange, of_tensor}, 1, 0, shares);
    AddShare({StepPart::kContextExchange, StepPart::kContextExchange, of_contexts}, 1, 0, shares);
    AddShare({StepPart::kNeighbours, StepPart::kNeighbours, of_neighbours}, 1, 0, shares);
  }

  double HostS(const LayerTime& pass) { return book_.HostS(pass.forward.launches + pass.backward.launches); }

  LayerTime Whole(const Stage& stage) {
    LayerTime pass;
    for (const Share& share : SharesOf(stage)) pass.Add(share.time, share.times);
    return pass;
  }

  GroupShape TensorGroup() const { return ShapeOf(Group::kTensor, layout_, gpus_per_node_); }

  // `bytes_share`: of rows as wide as the model.
  double OverTensorS(Collective collective, double bytes_share = 1) {
    return book_.CollectiveS(collective, TensorGroup(), bytes_share * token_bytes_, /*stride=*/1);
  }

  // `beside_s`: of what may run meanwhile, where that is asked for. Exchange and products are cut into a piece a rank;
  // the first piece has nothing beside it (Transformer Engine's ring exchange).
  void AddTensor(double time_s, int collectives, double beside_s, PassTime& pass) const {
    const double hidden_s = request_.overlaps_tensor ? beside_s : 0;
    pass.tensor_s += time_s, pass.communication_s += time_s;
    pass.tensor_wait_s += WaitedS(time_s, hidden_s, 1.0 / layout_.tensor_parallel);
    if (time_s > 0) pass.launches += collectives;
  }

  // Both collectives over TP that a block has in a pass; backward gathers the input once more. Products may hide them,
  // attention's scores may not.
  // `again`: what passes forward does so once more before its way back. `width`: of the block's input, over the
  // model's.
  void AddTensorExchange(BlockTime& block, bool again = false, double width = 1) {
    PassTime &forward = block.compute.forward, &backward = block.compute.backward;
    const double forward_s = forward.compute_s - block.scores_forward_s;
    const double again_s = SelectsAgain(request_, RecomputeModule::kCoreAttention) ? block.scores_forward_s : 0;
    const double backward_s = backward.compute_s - block.scores_backward_s - again_s;
    if (!request_.sequence_parallel) {
      const double sum_s = OverTensorS(Collective::kAllReduce);
      AddTensor(sum_s, 1, /*beside_s=*/0, forward);
      AddTensor(OverTensorS(Collective::kAllReduce, width), 1, /*beside_s=*/0, backward);
      if (again) AddTensor(sum_s, 1, /*beside_s=*/0, backward);
      return;
    }
    const double share = GatheredShare(request_);
    const double gather_s = OverTensorS(Collective::kAllGather, width * share);
    const double scatter_s = OverTensorS(Collective::kReduceScatter);
    AddTensor(gather_s + scatter_s, 2, forward_s, forward);
    // What is computed again hides its own.
    const double again_forward_s = again ? forward_s : 0;
    const double back_s = OverTensorS(Collective::kAllGather, share) + OverTensorS(Collective::kReduceScatter, width);
    AddTensor(gather_s + back_s, 3, backward_s - again_forward_s, backward);
    if (again) AddTensor(gather_s + scatter_s, 2, again_forward_s, backward);
  }

  // The embedding is cut over the vocabulary, so that each rank knows some of the tokens' rows; and the last product
  // reads all rows.
  void AddVocabularyExchanges() {
    PassTime &looked_up = embedding_.compute.forward, &scattered = embedding_.compute.backward;
    PassTime &read = head_.compute.forward, &returned = head_.compute.backward;
    if (!request_.sequence_parallel) {
      const double sum_s = OverTensorS(Collective::kAllReduce);
      AddTensor(sum_s, 1, /*beside_s=*/0, looked_up), AddTensor(sum_s, 1, /*beside_s=*/0, returned);
      return;
    }
    const double gather_s = OverTensorS(Collective::kAllGather);
    const double scatter_s = OverTensorS(Collective::kReduceScatter);
    AddTensor(scatter_s, 1, /*beside_s=*/0, looked_up), AddTensor(gather_s, 1, /*beside_s=*/0, scattered);
    AddTensor(gather_s, 1, /*beside_s=*/0, read), AddTensor(gather_s + scatter_s, 2, /*beside_s=*/0, returned);
  }

  void AddContextExchange(BlockTime& block) const {
    const GroupShape contexts = ContextGroup(point_, gpus_per_node_);
    if (contexts.size == 1) return;
    const int stride = ContextStride(point_);
    PassTime &forward = block.compute.forward, &backward = block.compute.backward;
    const auto add = [](double exchange_s, int collectives, double beside_s, PassTime& pass) {
      pass.wait_s += WaitedS(exchange_s, beside_s);
      pass.exchange_s += exchange_s;
      pass.communication_s += exchange_s;
      pass.launches += collectives;
    };
    if (request_.context_exchange == ContextExchange::kAllToAll) {
      const auto exchange_s = [&](double bytes) {
        return book_.CollectiveS(Collective::kAllToAll, contexts, bytes, stride);
      };
      const HeadExchangeBytes bytes = HeadExchangeBytesOf(model_, slice_);
      const double all_s =
          exchange_s(bytes.queries) + exchange_s(bytes.keys) + exchange_s(bytes.values) + exchange_s(bytes.outputs);
      add(all_s, 4, /*beside_s=*/0, forward), add(all_s, 4, /*beside_s=*/0, backward);
      return;
    }
    const double all_bytes = PassedBytes(model_, slice_) * layout_.context_parallel;
    const double there_s = book_.CollectiveS(Collective::kAllGather, contexts, all_bytes, stride);
    const double back_s = book_.CollectiveS(Collective::kReduceScatter, contexts, all_bytes, stride);
    add(there_s, 1, block.scores_forward_s, forward);
    add(there_s + back_s, 2, block.scores_backward_s, backward);
  }

  LayerTime Moe() {
    // The experts' activation, where it is computed again.
    double activation_s = 0;
    if (SelectsAgain(request_, RecomputeModule::kMoeAct)) {
      const double copies = model_.top_k * std::max(1.0, request_.capacity_factor);
      const MovedWork activation = ActivationWork(copies * tokens_ / layout_.tensor_parallel, model_.expert_hidden_dim,
                                                  model_.ffn_matrices(), request_.bytes_per_element);
      activation_s = book_.MovedS(activation.kernel, activation.forward_bytes, activation.forward_launches);
    }
    return {.forward = {.compute_s = moe_.forward_s,
                        .inside_s = moe_.forward_exchange_s,
                        .launches = 1.0 * moe_.forward_launches},
            .backward = {.compute_s = moe_.backward_s + activation_s,
                         .inside_s = moe_.backward_exchange_s,
                         .communication_s = moe_.backward_communication_s,
                         .launches = 1.0 * moe_.backward_launches}};
  }

  LayerTime Neighbours() {
    if (layout_.pipeline_parallel == 1) return {};
    const double bytes = token_bytes_ / (request_.sequence_parallel ? layout_.tensor_parallel : 1);
    const double pass_s = book_.SendS(NeighbourStages(point_, gpus_per_node_), bytes, StageRanks(layout_));
    const PassTime pass = {.wait_s = pass_s, .exchange_s = pass_s, .communication_s = pass_s, .launches = 1};
    return {.forward = pass, .backward = pass};
  }

  // A rank's share of the stage's parameters, and who has the same.
  struct Replicated {
    double parameters = 0;
    GroupShape replicas;
    int stride = 1;
  };
  std::array<Replicated, 2> Shares(const Stage& stage) const {
    const int expert_ranks = layout_.expert_parallel * layout_.expert_sharding_parallel;
    return {
        {{StageDenseParameters(model_, stage) / layout_.tensor_parallel, DenseReplicas(point_, gpus_per_node_),
          layout_.tensor_parallel},
         {StageExpertParameters(model_, stage) / expert_ranks, ExpertReplicas(point_, gpus_per_node_), expert_ranks}}};
  }
  // Of one of so many equal slices of both.
  double SliceS(Collective collective, const Stage& stage, double slices, double bytes_per_parameter) {
    double slice_s = 0;
    for (const Replicated& share : Shares(stage)) {
      slice_s +=
          book_.CollectiveS(collective, share.replicas, share.parameters * bytes_per_parameter / slices, share.stride);
    }
    return slice_s;
  }

  GradientTime GradientsOf(const Stage& stage, double window_s) {
    const bool cuts = request_.zero_stage > 0;
    const int slices = request_.overlaps_gradients ? std::max(1, stage.layers) : 1;
    const double slice_s =
        SliceS(cuts ? Collective::kReduceScatter : Collective::kAllReduce, stage, slices, request_.gradient_bytes);
    const double hidden_s = slices > 1 ? window_s * (slices - 1) / slices : 0;
    const double all_s = slices * slice_s;
    const bool gathers_after = cuts && request_.zero_stage < kMaxZeroStage;
    const double gathers_s =
        gathers_after ? slices * SliceS(Collective::kAllGather, stage, slices, request_.bytes_per_element) : 0;
    return {.busy_s = all_s + gathers_s, .exposed_s = std::max(slice_s, all_s - hidden_s) + gathers_s};
  }

  double OptimizerS(const Stage& stage) {
    double bytes = 0;
    for (const Replicated& share : Shares(stage)) {
      bytes += OptimizerBytes(share.parameters, request_.zero_stage > 0 ? share.replicas.size : 1,
                              request_.bytes_per_element, request_.gradient_bytes);
    }
    return book_.MovedS(Kernel::kOptimizer, bytes, /*launches=*/2);
  }

  // ZeRO-3: each pass gathers a layer's weights while the one before it runs.
  LayerTime Gathers(const Stage& stage, const LayerTime& pass) {
    const double slice_s = SliceS(Collective::kAllGather, stage, std::max(1, stage.layers), request_.bytes_per_element);
    const double all_s = stage.layers * slice_s;
    const auto beside = [&](double beside_s) {
      return PassTime{.wait_s = std::max(slice_s, all_s - beside_s),
                      .exchange_s = all_s,
                      .communication_s = all_s,
                      .launches = 1.0 * stage.layers};
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
  const std::span<const StageGain> gains_;
  int gpus_per_node_;
  double tokens_, token_bytes_;
  RankSlice slice_;
  BlockTime attention_, windowed_attention_, dense_, around_experts_, shared_experts_, join_, embedding_, head_;
  LayerTime moe_layer_, neighbours_;
  HalfLayers halves_;  // Of a layer with experts, which takes expert_layer_s_ alone.
  double expert_layer_s_ = 0;
  Stage slowest_;
  // The parts of the slowest stage's exchanges of experts and sends that run beside other micro-batches.
  double hidden_experts_s_ = 0, hidden_sends_s_ = 0;
  UpdateTime update_;
};

MoeTime ExpertFlopsTime(const LayoutRequest& request, const LayoutPoint& point, const CostBook& book) {
  const ModelConfig& model = request.model;
  if (model.moe_layers() == 0) return {};
  const double copies = model.top_k * std::min(1.0, request.capacity_factor);
  // Elsewhere they are a part of their own, which is priced exactly.
  const double shared = request.overlaps_shared_experts ? SharedExpertParameters(model) : 0;
  const double flops = 2 * TokensOf(point, request.sequence_length) * (copies * ExpertParameters(model) + shared) /
                       point.layout.tensor_parallel;
  const double forward_s = book.ProductsAtLeastS(flops);
  return {.forward_s = forward_s,
          .backward_s = 2 * forward_s,
          .forward_rest_s = forward_s,
          .backward_rest_s = 2 * forward_s};
}

}  // namespace

std::string_view Name(StepPart part) {
  constexpr std::string_view kNames[kStepParts] = {"attention",       "denseNetworks",    "moeLayers", "sharedExperts",
                                                   "elementwise",     "logits",           "loss",      "tensorExchange",
                                                   "contextExchange", "pipelineExchange", "weights",   "gradients",
                                                   "optimizer",       "hostLaunches",     "bubble"};
  return kNames[static_cast<size_t>(part)];
}

StepTime PriceStep(const LayoutRequest& request, const LayoutPoint& point, const MoeTime& moe, CostBook& book,
                   std::span<const StageGain> gains) {
  return StepPricer(request, point, moe, book, gains).Price(Gradients::kAsTheyHide);
}

StepParts PriceStepParts(const LayoutRequest& request, const LayoutPoint& point, const MoeTime& moe, CostBook& book,
                         std::span<const StageGain> gains) {
  StepPricer pricer(request, point, moe, book, gains);
  const StepTime time = pricer.Price(Gradients::kAsTheyHide);
  return {time, pricer.Parts(time), pricer.Overlap(), pricer.Hidden()};
}

double LeastStepS(const LayoutRequest& request, const LayoutPoint& point, CostBook& book) {
  const MoeTime flops = ExpertFlopsTime(request, point, book);
  return StepPricer(request, point, flops, book).Price(Gradients::kHidden).step_s;
}

double ModelFlopsUtilisation(const LayoutRequest& request, double step_s, double peak_flops_per_s) {
  if (peak_flops_per_s <= 0) return 0;
  const double tokens = static_cast<double>(request.global_batch) * request.sequence_length;
  const double flops = 3 * ModelFlopsPerToken(request.model, request.sequence_length, request.next_tokens) * tokens;
  return flops / (step_s * request.gpus * peak_flops_per_s);
}

}  // namespace moeplan::planner
