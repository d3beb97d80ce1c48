#include "planner/lancet/graph/transformer.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "models/step/layer_work.h"
#include "models/text.h"
#include "planner/layout/dispatch_cost.h"
#include "planner/layout/moe_plans.h"
#include "planner/layout/stages.h"

namespace moeplan::planner {
namespace {

constexpr const char* kLoss = "loss";
constexpr const char* kPassedOn = "passed_on";

// Says what a layer consists of.
struct LayerKind {
  bool has_experts = false;
  int window = 0;         // That its attention sees; 0: all.
  bool sees_all = false;  // Of an encoder, whose mask hides nothing.
};

class Builder {
 public:
  Builder(const Transformer& of, Tape tape)
      : request_(of.request),
        model_(request_.model),
        layout_(of.point.layout),
        tape_(std::move(tape)),
        slice_(SliceOf(request_, of.point)),
        tensor_group_(ShapeOf(Group::kTensor, layout_, of.gpus_per_node)),
        expert_group_(of.expert_group),
        context_group_(ContextGroup(of.point, of.gpus_per_node)),
        context_stride_(ContextStride(of.point)),
        neighbours_(NeighbourStages(of.point, of.gpus_per_node)) {}

  std::vector<Instruction> Build(const LayerRun& run) {
    std::string memory;  // What the encoder gives.
    std::string x = run.embeds ? Embed(model_.encoder_layers > 0 ? "encoder_embedding" : "embedding")
                               : Received(/*passes_on=*/!run.predicts);
    std::optional<Checkpoint> chunk;  // Layers that are computed again together,
    int in_chunk = 0;                 // and how many it has.
    for (int i = run.first; i < run.first + run.count; ++i) {
      if (i > 0 && i == model_.encoder_layers) {
        chunk.reset(), in_chunk = 0;
        memory = Norm("encoder_norm", x);
        x = Embed("embedding");
      }
      const std::string name = StrCat("layer", i, ".");
      tape_.StartPart(name);
      if (!chunk) chunk.emplace(*this, IsRecomputed(i - run.first));
      x = Layer(name, KindOf(i), x, memory);
      if (++in_chunk == request_.recompute_chunk) chunk.reset(), in_chunk = 0;
    }
    chunk.reset();
    if (!run.predicts) {
      PassOn(x, /*receives=*/!run.embeds);
      return tape_.Finish();
    }
    PredictNextTokens(run, x);
    tape_.StartPart("head.");
    Predict("", x, request_.next_tokens == 0 ? "" : "next1.head");
    return tape_.Finish();
  }

 private:
  // Instructions that are added while it lives are computed again together, unless a checkpoint around it has them.
  class Checkpoint {
   public:
    Checkpoint(Builder& builder, bool is_one) : builder_(builder), begins_(is_one && builder.checkpoint_ == 0) {
      if (begins_) builder_.checkpoint_ = ++builder_.groups_;
    }
    ~Checkpoint() {
      if (begins_) builder_.checkpoint_ = 0;
    }
    Checkpoint(const Checkpoint&) = delete;
    Checkpoint& operator=(const Checkpoint&) = delete;

   private:
    Builder& builder_;
    const bool begins_;
  };

  std::string Add(Step step) {
    if (checkpoint_ != 0) {
      step.again = Recomputed{.work = step.work, .op = step.op, .group = checkpoint_};
    } else if (!step.again) {
      step.again = SelectedAgain(step);
    }
    return tape_.Add(std::move(step));
  }
  // The part of a step that selective recomputation names by itself, if any.
  std::optional<Recomputed> SelectedAgain(const Step& step) {
    const BlockWork& all = step.work.block;
    const auto is_selected = [&](const auto& work) { return work.module && SelectsAgain(request_, *work.module); };
    BlockWork again;
    std::ranges::copy_if(all.linears, std::back_inserter(again.linears), is_selected);
    std::ranges::copy_if(all.moved, std::back_inserter(again.moved), is_selected);
    // The output of attention's scores is kept.
    const bool is_output = !all.attention && (!again.linears.empty() || !again.moved.empty());
    if (all.attention && SelectsAgain(request_, RecomputeModule::kCoreAttention)) again.attention = all.attention;
    if (again.linears.empty() && again.moved.empty() && !again.attention) return std::nullopt;
    return Recomputed{.work = {.block = std::move(again)}, .op = step.op, .group = ++groups_, .is_output = is_output};
  }
  // Experts' activation, which is inside their instruction.
  Recomputed ActivationAgain() {
    const double rows = model_.top_k * std::max(1.0, request_.capacity_factor) * GatedTokens();
    const MovedWork activation =
        ActivationWork(rows, model_.expert_hidden_dim, model_.ffn_matrices(), request_.bytes_per_element);
    return {.work = Moved({activation}), .op = InstructionOp::kElementwise, .group = ++groups_};
  }

  int ExpertRanks() const { return layout_.expert_parallel * layout_.expert_sharding_parallel; }
  static StepWork Moved(std::vector<MovedWork> moved) { return {.block = {.moved = std::move(moved)}}; }
  static std::vector<MovedWork> Only(const BlockWork& block, Kernel kernel) {
    std::vector<MovedWork> only;
    std::ranges::copy_if(block.moved, std::back_inserter(only),
                         [kernel](const MovedWork& moved) { return moved.kernel == kernel; });
    return only;
  }
  static constexpr double kLossBytes = 4, kSentBytes = 1;  // What stays of rows that were sent is that they were.
  double RowBytes(double features) const { return slice_.tokens * features * request_.bytes_per_element; }
  // Rows of the model's dimension: those that a tensor-parallel group holds, those of a rank between blocks, and those
  // that a rank's gate sees.
  double AllXBytes() const { return RowBytes(model_.model_dim); }
  double XBytes() const { return slice_.own_tokens() * model_.model_dim * request_.bytes_per_element; }
  double GatedTokens() const { return slice_.tokens / slice_.tensor_parallel; }
  double GatedXBytes() const { return GatedTokens() * model_.model_dim * request_.bytes_per_element; }
  // Each token and choice has an expert, a slot and a weight.
  double PairBytes() const { return GatedTokens() * model_.top_k * (2 * sizeof(int32_t) + sizeof(float)); }

  bool SharesLayers() const { return slice_.tensor_parallel > 1; }
  Exchange OverTensor(std::optional<InstructionOp> forward, std::optional<InstructionOp> backward) const {
    return {.forward = forward, .backward = backward, .group = tensor_group_, .bytes = AllXBytes(), .stride = 1};
  }
  std::string Exchanged(const std::string& id, const std::string& x, const Exchange& exchange, double output_bytes) {
    const InstructionOp op = exchange.forward.value_or(InstructionOp::kOther);
    return Add({id, op, {x}, {.exchange = exchange}, {output_bytes}});
  }
  // Layers' rows are gathered in the precision of the product that reads them and, where the request asks for it, piece
  // by piece beside the products; those of the vocabulary's products as they are.
  enum class RowsOf { kLayer, kVocabulary };
  double GatheredShareOf(RowsOf of) const { return of == RowsOf::kLayer ? GatheredShare(request_) : 1; }
  int Pieces(RowsOf of) const { return of == RowsOf::kLayer && request_.overlaps_tensor ? slice_.tensor_parallel : 1; }
  // Returns all rows, for products whose columns are cut. Gradients of the rows are then sums over the ranks.
  // `width`: of the rows, over the model's.
  std::string AllRows(const std::string& id, const std::string& x, RowsOf of, int width = 1) {
    if (!SharesLayers()) return x;
    if (!slice_.sequence_parallel) {
      Exchange sum = OverTensor(std::nullopt, InstructionOp::kAllReduce);
      sum.bytes *= width;
      return Exchanged(id, x, sum, sum.bytes);
    }
    Exchange exchange = OverTensor(InstructionOp::kAllGather, InstructionOp::kReduceScatter);
    exchange.bytes *= width;
    exchange.again = true;
    exchange.pieces = Pieces(of);
    exchange.backward_bytes = exchange.bytes;
    exchange.output_gradient_bytes = exchange.bytes;
    exchange.bytes *= GatheredShareOf(of);
    return Exchanged(id, x, exchange, exchange.bytes);
  }
  // Sums rows over the ranks, each of which has some of the terms, and returns all rows or a rank's own.
  std::string Summed(const std::string& id, const std::string& y, RowsOf of) {
    if (!SharesLayers()) return y;
    if (!slice_.sequence_parallel) {
      return Exchanged(id, y, OverTensor(InstructionOp::kAllReduce, std::nullopt), XBytes());
    }
    Exchange exchange = OverTensor(InstructionOp::kReduceScatter, InstructionOp::kAllGather);
    exchange.pieces = Pieces(of);
    exchange.backward_bytes = exchange.input_gradient_bytes = GatheredShareOf(of) * exchange.bytes;
    return Exchanged(id, y, exchange, XBytes());
  }

  std::string Embed(const std::string& id) {
    tape_.StartPart(id + ".");
    return Embedded(id);
  }
  // `weights_of`: the embedding whose weights it has; empty: they are its own.
  std::string Embedded(const std::string& id, const std::string& weights_of = "") {
    const double parameters = 1.0 * model_.vocab * model_.model_dim / slice_.tensor_parallel;
    Step step = {id,
                 InstructionOp::kOther,
                 {"tokens"},
                 {.block = EmbeddingWork(model_, slice_)},
                 {AllXBytes()},
                 /*weights=*/true,
                 weights_of.empty() ? parameters : 0};
    step.weights_of = weights_of;
    return Summed(id + "_sum", Add(std::move(step)), RowsOf::kVocabulary);
  }
  // A SEND of the rows between blocks, on the ways on which it is one.
  std::string BetweenStages(const std::string& id, const std::string& x, bool forward, bool backward,
                            double output_bytes) {
    const auto sends = [](bool does) { return does ? std::optional(InstructionOp::kSend) : std::nullopt; };
    const Exchange exchange = {.forward = sends(forward),
                               .backward = sends(backward),
                               .group = neighbours_,
                               .bytes = XBytes(),
                               .stride = StageRanks(layout_),
                               .between_stages = true};
    return Exchanged(id, x, exchange, output_bytes);
  }
  // Rows of the stage before, to which their gradients go. They came while others were passed on, but to the last
  // stage, which passes none on.
  std::string Received(bool passes_on) {
    tape_.StartPart("received.");
    return BetweenStages("received", "stage_before", !passes_on, true, XBytes());
  }
  // Rows to the stage after. Their gradients come while others go to the stage before, but to the first stage, which
  // has none before it.
  void PassOn(const std::string& x, bool receives) {
    tape_.StartPart("passed_on.");
    BetweenStages(kPassedOn, x, true, !receives, kSentBytes);
  }
  // A norm of a layer, which selective recomputation may name, or one of a block that has others.
  std::string Norm(const std::string& id, const std::string& x) {
    return NormOf(AroundExpertsWork(model_, slice_), id, x);
  }
  std::string NormOf(const BlockWork& block, const std::string& id, const std::string& x) {
    return Add({id, InstructionOp::kLayerNorm, {x}, Moved({Only(block, Kernel::kNorm).front()}), {XBytes()}});
  }
  // `weights_of`: as Embedded's.
  std::string Linears(const std::string& id, const std::string& x, std::vector<LinearWork> linears,
                      const std::string& weights_of = "") {
    double features = 0, parameters = 0;
    for (const LinearWork& linear : linears) {
      features += linear.out_features;
      parameters += 1.0 * linear.in_features * linear.out_features;
    }
    Step step = {id,
                 InstructionOp::kMatmul,
                 {x},
                 {.block = {.linears = std::move(linears)}},
                 {RowBytes(features)},
                 /*weights=*/true,
                 weights_of.empty() ? parameters : 0};
    step.weights_of = weights_of;
    return Add(std::move(step));
  }
  LinearWork Linear(double in_features, double out_features) const {
    return {.rows = slice_.tokens,
            .in_features = static_cast<int>(in_features),
            .out_features = static_cast<int>(out_features)};
  }
  // Reads all of `inputs` and writes one, and the same of their gradients.
  std::string Sum(const std::string& id, Tensors inputs) {
    const double bytes = XBytes() * (static_cast<double>(inputs.size()) + 1);
    const MovedWork sum = {.kernel = Kernel::kResidual, .forward_bytes = bytes, .backward_bytes = bytes};
    return Add({id, InstructionOp::kElementwise, std::move(inputs), Moved({sum}), {XBytes()}});
  }

  LayerKind KindOf(int i) const {
    const bool windowed = !model_.windowed_layer.empty() && model_.windowed_layer[i];
    return {.has_experts = model_.moe_layer[i],
            .window = windowed ? model_.window : 0,
            .sees_all = i < model_.encoder_layers};
  }
  // Whether full recomputation computes the virtual stage's i-th layer again.
  bool IsRecomputed(int i) const {
    if (request_.recompute != Recompute::kFull) return false;
    return request_.recompute_layers == 0 || i < request_.recompute_layers;
  }

  std::string Layer(const std::string& name, const LayerKind& kind, const std::string& x,
                    const std::string& memory = "") {
    std::string y = Attention(name, Norm(name + "norm1", x), kind);
    y = Sum(name + "add1", {x, y});
    if (!memory.empty()) {
      y = Sum(name + "add_cross", {y, CrossAttention(name + "cross_", Norm(name + "cross_norm", y), memory)});
    }
    const std::string normed = Norm(name + "norm2", y);
    Tensors parts = kind.has_experts ? Experts(name, normed) : Tensors{DenseNetwork(name, normed)};
    parts.insert(parts.begin(), y);
    return Sum(name + "add2", parts);
  }
  std::string DenseNetwork(const std::string& name, const std::string& x) {
    const Checkpoint network(*this, SelectsAgain(request_, RecomputeModule::kMlp));
    return Network(name, x, DenseBlockWork(model_, slice_));
  }

  // Layers behind the model's, each of which predicts one token further: of the row before it and the next token's,
  // side by side, a product makes one (DeepSeek-V3 §2.2). Embedding and head have the model's weights, which are
  // counted where their last gradient is made.
  void PredictNextTokens(const LayerRun& run, std::string x) {
    LayerKind kind = KindOf(model_.layers() - 1);
    kind.window = 0;
    const BlockWork join = JoinWork(model_, slice_);
    for (int i = 0; i < request_.next_tokens; ++i) {
      const std::string name = StrCat("next", i + 1, ".");
      tape_.StartPart(name);
      const std::string first_embedding = run.embeds ? "embedding" : "next1.embedding";
      const std::string token = Embedded(name + "embedding", i > 0 || run.embeds ? first_embedding : "");
      const std::string pair = Add({name + "pair",
                                    InstructionOp::kElementwise,
                                    {NormOf(join, name + "norm_row", x), NormOf(join, name + "norm_token", token)},
                                    Moved(Only(join, Kernel::kDeviceCopy)),
                                    {kJoinedWidth * XBytes()}});
      const std::string joined =
          Linears(name + "join", AllRows(name + "join_in", pair, RowsOf::kLayer, kJoinedWidth), join.linears);
      x = Summed(name + "join_sum", joined, RowsOf::kLayer);
      {
        const Checkpoint layer(*this, IsRecomputed(i));
        x = Layer(name, kind, x);
      }
      Predict(name, x, i == 0 ? "" : "next1.head");
    }
  }
  // The last norm, the product with the vocabulary, and the loss.
  void Predict(const std::string& name, const std::string& x, const std::string& weights_of) {
    const BlockWork head = HeadWork(model_, slice_);
    const std::string normed = NormOf(head, name + "norm", x);
    const std::string logits =
        Linears(name + "head", AllRows(name + "head_in", normed, RowsOf::kVocabulary), head.linears, weights_of);
    Add({name + kLoss, InstructionOp::kOther, {logits}, Moved(Only(head, Kernel::kCrossEntropy)), {kLossBytes}});
  }

  // Projections, what turns queries and keys by their position, scores and values, and the last projection, as
  // `layout` and `step` count them.
  std::string Attention(const std::string& name, const std::string& x, const LayerKind& kind) {
    RankSlice slice = slice_;
    slice.window = kind.window;
    BlockWork block = AttentionBlockWork(model_, slice);
    // A mask that hides nothing leaves no block out.
    if (kind.sees_all) block.attention->flops *= 2;
    const LinearWork out = block.linears.back();
    block.linears.pop_back();
    std::string read = Linears(name + "qkv", AllRows(name + "qkv_in", x, RowsOf::kLayer), block.linears);
    std::vector<MovedWork> turned = block.moved;
    turned.erase(turned.begin());  // The norm before attention, which is an instruction of its own.
    std::erase_if(turned, [](const MovedWork& moved) {
      return moved.kernel == Kernel::kResidual || moved.kernel == Kernel::kActivation;
    });
    double read_features = 0;
    for (const LinearWork& linear : block.linears) read_features += linear.out_features;
    read = Add(
        {name + "rotary", InstructionOp::kElementwise, {read}, Moved(std::move(turned)), {RowBytes(read_features)}});
    std::string y = Add({name + "attention",
                         InstructionOp::kAttention,
                         Attended(name, read),
                         StepWork{.block = {.attention = block.attention, .moved = Only(block, Kernel::kActivation)}},
                         {RowBytes(out.in_features)}});
    if (TradesHeads()) y = Traded(name + "contexts_out", y, HeadExchangeBytesOf(model_, slice_).outputs);
    return Summed(name + "out_sum", Linears(name + "out", y, {out}), RowsOf::kLayer);
  }
  // Returns what a rank's attention reads: its own queries, keys and values, and what other contexts have of them.
  Tensors Attended(const std::string& name, const std::string& read) {
    if (layout_.context_parallel == 1) return {read};
    if (!TradesHeads()) return {read, OtherContexts(name + "contexts", read)};
    const HeadExchangeBytes bytes = HeadExchangeBytesOf(model_, slice_);
    return {Traded(name + "contexts_queries", read, bytes.queries), Traded(name + "contexts_keys", read, bytes.keys),
            Traded(name + "contexts_values", read, bytes.values)};
  }
  bool TradesHeads() const { return layout_.context_parallel > 1 && slice_.exchanges_heads; }
  // Trades tokens of some heads for those of others, or back.
  std::string Traded(const std::string& id, const std::string& x, double bytes) {
    return Exchanged(id, x,
                     {.forward = InstructionOp::kHeadExchange,
                      .backward = InstructionOp::kHeadExchange,
                      .group = context_group_,
                      .bytes = bytes,
                      .stride = context_stride_,
                      .input_gradient_bytes = bytes},
                     bytes);
  }
  // Returns the keys and values of all contexts.
  std::string OtherContexts(const std::string& id, const std::string& read) {
    const double bytes = layout_.context_parallel * PassedBytes(model_, slice_);
    return Exchanged(id, read,
                     {.forward = InstructionOp::kAllGather,
                      .backward = InstructionOp::kReduceScatter,
                      .group = context_group_,
                      .bytes = bytes,
                      .stride = context_stride_,
                      .input_gradient_bytes = PassedBytes(model_, slice_),
                      .again = true},
                     bytes);
  }

  // To the encoder's output, every token of which each token sees.
  std::string CrossAttention(const std::string& name, const std::string& x, const std::string& memory) {
    AttentionWork attention = *AttentionBlockWork(model_, slice_).attention;
    attention.flops *= 2;
    const double all_heads = 1.0 * model_.heads * model_.head_dim;
    const Tensors read = {
        Linears(name + "q", x, {Linear(model_.model_dim, all_heads)}),
        Linears(name + "kv", memory, {Linear(model_.model_dim, 2.0 * model_.kv_heads * model_.head_dim)})};
    const std::string y = Add({name + "attention",
                               InstructionOp::kAttention,
                               read,
                               {.block = {.attention = attention}},
                               {RowBytes(all_heads)}});
    return Linears(name + "out", y, {Linear(all_heads, model_.model_dim)});
  }

  std::string Network(const std::string& name, const std::string& x, const BlockWork& block) {
    const std::string up = Linears(name + "up", AllRows(name + "up_in", x, RowsOf::kLayer), {block.linears.front()});
    const std::string activated = Add({name + "activation",
                                       InstructionOp::kElementwise,
                                       {up},
                                       Moved(Only(block, Kernel::kActivation)),
                                       {RowBytes(block.linears.back().in_features)}});
    return Summed(name + "down_sum", Linears(name + "down", activated, {block.linears.back()}), RowsOf::kLayer);
  }

  // A rank that has all rows gates a part of them, gets the gradients of the others back, and then all rows of what the
  // ranks combined.
  std::string GatedRows(const std::string& id, const std::string& x) {
    if (!SharesLayers() || slice_.sequence_parallel) return x;
    return Exchanged(id, x, OverTensor(std::nullopt, InstructionOp::kAllGather), GatedXBytes());
  }
  std::string CombinedRows(const std::string& id, const std::string& y) {
    if (!SharesLayers() || slice_.sequence_parallel) return y;
    return Exchanged(id, y, OverTensor(InstructionOp::kAllGather, std::nullopt), XBytes());
  }
  // Each rank's gate sees its own rows alone, so its gradient is summed, in FP32 as schedules of layers have it.
  std::optional<Exchange> GateSum() const {
    if (!SharesLayers()) return std::nullopt;
    Exchange sum = OverTensor(InstructionOp::kAllReduce, std::nullopt);
    sum.bytes = 1.0 * sizeof(float) * model_.model_dim * model_.experts;
    return sum;
  }

  std::string SharedExpert(const std::string& name, const std::string& x) {
    const Checkpoint expert(*this, SelectsAgain(request_, RecomputeModule::kSharedExperts));
    return Network(name, x, SharedExpertWork(model_, slice_));
  }

  bool GathersRows() const { return request_.dispatcher == Dispatcher::kAllGather && expert_group_.size > 1; }
  // Sends rows to the ranks that have their experts, or back.
  Exchange OverExperts(double bytes) const {
    Exchange exchange = {.forward = InstructionOp::kAllToAll,
                         .backward = InstructionOp::kAllToAll,
                         .group = expert_group_,
                         .bytes = bytes};
    if (SendsOnceToANode(request_.dispatcher) && expert_group_.size > 1) {
      exchange.all_to_all_bytes = bytes;
      exchange.bytes *= OnceANode(DispatchingOf(request_).routing, expert_group_);
    }
    return exchange;
  }
  // Brings all rows of the experts' ranks to each of them, or sums what each made for the others.
  Exchange GatheredOverExperts(InstructionOp forward, InstructionOp backward) const {
    return {.forward = forward,
            .backward = backward,
            .group = expert_group_,
            .bytes = expert_group_.size * GatedXBytes(),
            .stream = StreamKind::kInterNode};
  }

  // The experts' output, and the shared expert's, which is computed while tokens are on their way. Where a dispatcher
  // gathers rows, they are gathered in front of the dispatch, and summed behind the combination.
  Tensors Experts(const std::string& name, const std::string& normed) {
    const double slots = model_.top_k * request_.capacity_factor * GatedTokens();
    const double bytes = slots * model_.model_dim * request_.bytes_per_element;
    const auto kernel = [](Kernel kernel, double size) { return StepWork{.kernel = kernel, .kernel_size = size}; };
    // To all parts of the experts.
    const double sent_bytes = layout_.expert_sharding_parallel * bytes;
    // Each part of an expert returns its gradient of a row; one gradient of what they made goes to all of them.
    Exchange there = OverExperts(sent_bytes), back = there;
    there.input_gradient_bytes = sent_bytes;
    back.output_gradient_bytes = bytes;
    StepWork dispatches = kernel(Kernel::kPermute, bytes), combines = dispatches;
    if (layout_.expert_sharding_parallel > 1) {
      combines.shards_bytes = dispatches.shards_bytes = sent_bytes;
      dispatches.shards_side = Side::kInputGradient;
    }
    const Checkpoint layer(*this, SelectsAgain(request_, RecomputeModule::kMoe));
    const std::string x = GatedRows(name + "slice", normed);
    StepWork gates = kernel(Kernel::kGate, GatedXBytes());
    // It computes the logits once more and then its product (models/schedule/graph_builder.cc, GateGradient).
    gates.input_gradient_size = 2 * gates.kernel_size;
    const std::string gate = Add({name + "gate",
                                  InstructionOp::kGate,
                                  {x},
                                  gates,
                                  {PairBytes()},
                                  /*weights=*/true,
                                  1.0 * model_.model_dim * model_.experts,
                                  GateSum()});
    std::string rows = x;
    double combined_bytes = GatedXBytes();
    if (GathersRows()) {
      const Exchange gather = GatheredOverExperts(InstructionOp::kAllGather, InstructionOp::kReduceScatter);
      rows = Exchanged(name + "gather", x, gather, gather.bytes);
      combined_bytes = gather.bytes;
    }
    // Its second output says where each slot came from and with what weight, which combine reads.
    Step dispatch = {name + "dispatch", InstructionOp::kDispatch, {rows, gate}, dispatches, {bytes, PairBytes()}};
    const std::string sources = Tape::OutputOf(dispatch, 1);
    std::string got = Add(dispatch);
    if (!GathersRows()) got = Exchanged(name + "all_to_all1", got, there, sent_bytes);
    Tensors outputs;
    if (model_.shared_hidden_dim > 0) outputs = {SharedExpert(name + "shared_", normed)};
    const double local_experts = 1.0 * model_.experts / ExpertRanks();
    const StepWork experts = kernel(Kernel::kExpertGemm, 2 * slots * ExpertParameters(model_));
    Step product = {name + "experts",
                    InstructionOp::kExpert,
                    {got},
                    experts,
                    {sent_bytes},
                    /*weights=*/true,
                    local_experts * ExpertParameters(model_)};
    if (SelectsAgain(request_, RecomputeModule::kMoeAct)) product.again = ActivationAgain();
    std::string made = Add(std::move(product));
    if (!GathersRows()) made = Exchanged(name + "all_to_all2", made, back, sent_bytes);
    std::string combined =
        Add({name + "combine", InstructionOp::kCombine, {made, sources}, combines, {combined_bytes}});
    if (GathersRows()) {
      const Exchange scatter = GatheredOverExperts(InstructionOp::kReduceScatter, InstructionOp::kAllGather);
      combined = Exchanged(name + "scatter", combined, scatter, GatedXBytes());
    }
    outputs.push_back(CombinedRows(name + "whole", combined));
    return outputs;
  }

  const LayoutRequest& request_;
  const ModelConfig& model_;
  const Layout& layout_;
  Tape tape_;
  const RankSlice slice_;
  const GroupShape tensor_group_, expert_group_, context_group_;
  const int context_stride_;
  const GroupShape neighbours_;
  int checkpoint_ = 0;  // The group of instructions that are computed again together; 0: none.
  int groups_ = 0;
};

}  // namespace

const char* LastOfForward(const LayerRun& run) { return run.predicts ? kLoss : kPassedOn; }

std::vector<Instruction> InstructionsOf(const Transformer& transformer, const LayerRun& run, Tape tape) {
  return Builder(transformer, std::move(tape)).Build(run);
}

}  // namespace moeplan::planner
