#include "planner/lancet/model_graph.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "models/measurement/cost_key.h"
#include "models/step/layer_work.h"
#include "models/text.h"
#include "models/timeline/pricer.h"
#include "planner/layout/cost_book.h"

namespace moeplan::planner {
namespace {

using Tensors = std::vector<std::string>;

constexpr double kMostTokens = 1 << 30;
constexpr double kBucketBytes = 25 << 20;  // Of gradients that are summed together: PyTorch's DDP, as it is set.

// What an instruction does: a part of a transformer's block, a kernel of the MoE layer, or its exchange.
struct StepWork {
  BlockWork block;
  std::optional<Kernel> kernel;  // GATE, PERMUTE or EXPERT_GEMM, on so much as the kernel counts.
  double kernel_size = 0;
  double exchanged_bytes = 0;  // By the all-to-all over EP, as nccl-tests counts them.
};

// What is computed: the forward pass, or one of the two gradients of an instruction with weights. An instruction
// without weights has the first alone.
enum class Side { kForward, kInputGradient, kWeightGradient };

// One instruction of the forward pass, and what its way back needs.
struct Step {
  std::string id;
  InstructionOp op = InstructionOp::kOther;
  Tensors activations;
  StepWork work;
  std::vector<double> output_bytes;
  bool weights = false;
  double parameters = 0;  // Of a rank.
};

class Costs {
 public:
  Costs(const ModelConfig& model, const ModelGraphOptions& options, const Profile& profile)
      : options_(options),
        layer_(RoutedLayerOf(model, options)),
        layout_{.expert_parallel = options.expert_parallel},
        book_(profile, model.model_dim, options.bytes_per_element),
        of_layer_(book_.ForLayer(layer_, layout_)),
        pricer_(of_layer_) {}

  // What the work consists of, kernel after kernel.
  std::vector<Work> KernelsOf(const StepWork& work, Side side) {
    CostBook::Asked asked;
    book_.CountInto(&asked);
    (void)TimeS(work, 1, side);
    book_.CountInto(nullptr);
    std::vector<Work> kernels;
    for (const auto& [cost, times] : asked) {
      if (!std::holds_alternative<KernelKey>(cost.first)) continue;
      kernels.insert(kernels.end(), times, {cost.first, cost.second});
    }
    if (work.kernel) kernels.push_back({KeyOf(KernelOn(side, *work.kernel), layer_, layout_), work.kernel_size});
    return kernels;
  }

  double CollectiveS(Collective collective, const GroupShape& group, double bytes) {
    return book_.CollectiveS(collective, group, bytes);
  }
  // The step over the parameters of a rank, whose states are cut over so many ranks.
  StepWork Optimizer(double dense, int dense_shards, double experts, int expert_shards) const {
    const auto bytes = [&](double parameters, int shards) {
      return OptimizerBytes(parameters, shards, options_.bytes_per_element, options_.gradient_bytes);
    };
    const MovedWork moved = {.kernel = Kernel::kOptimizer,
                             .forward_bytes = bytes(dense, dense_shards) + bytes(experts, expert_shards),
                             .forward_launches = 2};
    return {.block = {.moved = {moved}}};
  }
  Workload workload() const { return {.layer = layer_, .layout = layout_}; }

  double TimeS(const StepWork& work, double share, Side side) {
    double time_s = 0;
    for (LinearWork linear : work.block.linears) {
      linear.rows *= share;
      time_s += book_.LinearS(ProductOf(side), linear);
    }
    if (work.block.attention) {
      AttentionWork attention = *work.block.attention;
      attention.flops *= share;
      time_s += book_.AttentionS(side == Side::kForward ? Kernel::kAttention : Kernel::kAttentionGradient, attention);
    }
    for (const MovedWork& moved : work.block.moved) {
      time_s += side == Side::kForward
                    ? book_.MovedS(moved.kernel, share * moved.forward_bytes, moved.forward_launches)
                    : book_.MovedS(moved.kernel, share * moved.backward_bytes, moved.backward_launches);
    }
    if (work.kernel) {
      time_s += pricer_.Price(KeyOf(KernelOn(side, *work.kernel), layer_, layout_), share * work.kernel_size).time_s;
    }
    return time_s + book_.CollectiveS(Collective::kAllToAll, {options_.expert_parallel, options_.ranks_per_node},
                                      share * work.exchanged_bytes);
  }

  Status Missing() const {
    std::set<CostKey> missing = book_.missing();
    for (const CostKey& key : pricer_.missing()) missing.insert(key);
    return missing.empty() ? OkStatus() : NotFound(MissingReason({missing.begin(), missing.end()}, layout_));
  }
  PriceNotes notes() const {
    PriceNotes notes = book_.notes();
    notes.Merge(pricer_.notes());
    return notes;
  }

 private:
  // Without the shared expert, which is an instruction of its own.
  static Layer RoutedLayerOf(const ModelConfig& model, const ModelGraphOptions& options) {
    Layer layer = LayerOf(model);
    layer.batch = options.batch;
    layer.sequence_length = options.sequence_length;
    layer.capacity_factor = options.capacity_factor;
    layer.bytes_per_element = options.bytes_per_element;
    layer.shared_hidden_dim = 0;
    return layer;
  }
  static Kernel ProductOf(Side side) {
    if (side == Side::kForward) return Kernel::kLinear;
    return side == Side::kInputGradient ? Kernel::kLinearInputGradient : Kernel::kLinearWeightGradient;
  }
  static Kernel KernelOn(Side side, Kernel kernel) {
    return kernel == Kernel::kExpertGemm ? ExpertProductOf(side) : kernel;
  }
  static Kernel ExpertProductOf(Side side) {
    if (side == Side::kForward) return Kernel::kExpertGemm;
    return side == Side::kInputGradient ? Kernel::kExpertInputGradient : Kernel::kExpertWeightGradient;
  }

  const ModelGraphOptions& options_;
  Layer layer_;
  Layout layout_;
  CostBook book_;
  Profile of_layer_;
  Pricer pricer_;
};

// Writes steps down forward, then walks back over them.
class Tape {
 public:
  Tape(const ModelGraphOptions& options, Costs& costs) : options_(options), costs_(costs) {}

  // The step's first output.
  std::string Add(Step step) {
    Instruction one = {.id = step.id, .op = step.op, .inputs = step.activations};
    if (step.weights) one.inputs.push_back(step.id + ".w");
    for (size_t i = 0; i < step.output_bytes.size(); ++i) one.outputs.push_back(OutputOf(step, i));
    one.output_bytes = step.output_bytes;
    made_.insert(one.outputs.begin(), one.outputs.end());
    if (step.op == InstructionOp::kGate) one.gate = options_.gate;
    SetTimes(step.work, Side::kForward, one);
    for (int k = 1; k <= options_.max_parts; ++k) {
      one.part_times_s.push_back(k == 1 ? *one.time_s : costs_.TimeS(step.work, 1.0 / k, Side::kForward));
    }
    instructions_.push_back(std::move(one));
    steps_.push_back(std::move(step));
    return OutputOf(steps_.back(), 0);
  }
  static std::string OutputOf(const Step& step, size_t i) {
    return i == 0 ? step.id + ".y" : StrCat(step.id, ".y", i + 1);
  }

  std::vector<Instruction> Finish() {
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      AddBack(*step);
      for (Gradients* const of : {&dense_, &experts_}) {
        if (of->bucket_bytes >= kBucketBytes) AddGradientSum(*of);
      }
    }
    for (Gradients* const of : {&dense_, &experts_}) {
      if (of->bucket_bytes > 0) AddGradientSum(*of);
    }
    AddOptimizer();
    return std::move(instructions_);
  }

 private:
  void SetTimes(const StepWork& work, Side side, Instruction& one) {
    one.time_s = costs_.TimeS(work, 1, side);
    one.work = costs_.KernelsOf(work, side);
    if (work.exchanged_bytes <= 0) return;
    one.bytes = work.exchanged_bytes;
    constexpr double kCountBytes = 4;  // Each rank says of each expert how many rows it sends.
    one.counts_bytes = kCountBytes * costs_.workload().layer.experts;
    one.group_size = options_.expert_parallel;
    one.ranks_per_node = options_.ranks_per_node;
  }

  void AddBack(const Step& step) {
    Tensors gradients;
    for (size_t i = 0; i < step.output_bytes.size(); ++i) {
      const Tensors& of_output = gradients_of_[OutputOf(step, i)];
      gradients.insert(gradients.end(), of_output.begin(), of_output.end());
    }
    Instruction back = {.id = step.id + ".dx", .op = step.op, .phase = Pass::kBackward, .inputs = gradients};
    // An exchange only sends back what it got; the others look at what they read.
    if (step.op != InstructionOp::kAllToAll) Append(step.activations, back.inputs);
    for (const std::string& tensor : step.activations) {
      if (!made_.contains(tensor)) continue;
      back.outputs.push_back(StrCat("d(", tensor, ").", step.id));
      gradients_of_[tensor].push_back(back.outputs.back());
    }
    SetTimes(step.work, Side::kInputGradient, back);
    if (!back.outputs.empty()) instructions_.push_back(std::move(back));
    if (!step.weights) return;
    Instruction weights = {.id = step.id + ".dw", .op = step.op, .phase = Pass::kBackward, .inputs = gradients};
    Append(step.activations, weights.inputs);
    weights.outputs = {StrCat("d(", step.id, ".w)")};
    weights.weight_gradient = true;
    SetTimes(step.work, Side::kWeightGradient, weights);
    Gradients& of = step.op == InstructionOp::kExpert ? experts_ : dense_;
    of.bucket.push_back(weights.outputs.front());
    of.bucket_bytes += step.parameters * options_.gradient_bytes;
    of.parameters += step.parameters;
    instructions_.push_back(std::move(weights));
  }

  // Weights that the ranks of a group have alike: how many there are on each, and gradients that wait to be summed.
  struct Gradients {
    std::string prefix;
    GroupShape replicas;
    double parameters = 0;
    Tensors bucket;
    double bucket_bytes = 0;
    int sums = 0;
  };

  // A collective of the replicas, on a stream of its own.
  Instruction OfReplicas(const Gradients& of, const std::string& name, InstructionOp op, double bytes, Tensors inputs) {
    Instruction one = {.id = of.prefix + name, .op = op, .phase = Pass::kBackward, .inputs = std::move(inputs)};
    one.time_s = costs_.CollectiveS(*CollectiveOf(op), of.replicas, bytes);
    one.bytes = bytes;
    one.group_size = of.replicas.size;
    one.ranks_per_node = of.replicas.ranks_per_node;
    one.outputs = {one.id + ".y"};
    return one;
  }

  // Sums a bucket of gradients over its replicas, beside what computes: whole, or for each rank the part whose
  // optimizer states it has.
  void AddGradientSum(Gradients& of) {
    const InstructionOp op = options_.cuts_optimizer ? InstructionOp::kReduceScatter : InstructionOp::kAllReduce;
    if (of.replicas.size == 1) {
      Append(of.bucket, finished_);
    } else {
      instructions_.push_back(OfReplicas(of, StrCat("gradients.", ++of.sums), op, of.bucket_bytes, of.bucket));
      finished_.push_back(instructions_.back().outputs.front());
    }
    of.bucket_bytes = 0;
    of.bucket.clear();
  }

  void AddOptimizer() {
    Instruction step = {.id = "optimizer", .op = InstructionOp::kOther, .phase = Pass::kBackward, .inputs = finished_};
    const auto shards = [&](const Gradients& of) { return options_.cuts_optimizer ? of.replicas.size : 1; };
    SetTimes(costs_.Optimizer(dense_.parameters, shards(dense_), experts_.parameters, shards(experts_)), Side::kForward,
             step);
    step.outputs = {"optimizer.y"};
    instructions_.push_back(std::move(step));
    for (const Gradients* const of : {&dense_, &experts_}) {
      if (shards(*of) == 1) continue;
      instructions_.push_back(OfReplicas(*of, "weights", InstructionOp::kAllGather,
                                         of->parameters * options_.bytes_per_element, {"optimizer.y"}));
    }
  }

  static void Append(const Tensors& more, Tensors& tensors) { tensors.insert(tensors.end(), more.begin(), more.end()); }

  const ModelGraphOptions& options_;
  Costs& costs_;
  std::vector<Step> steps_;
  std::vector<Instruction> instructions_;
  std::set<std::string> made_;  // Every tensor that the forward pass writes.
  std::map<std::string, Tensors> gradients_of_;
  Gradients dense_ = {.replicas = options_.dense_replicas()};
  Gradients experts_ = {.prefix = "expert_", .replicas = options_.expert_replicas()};
  Tensors finished_;  // What the optimizer reads.
};

class Builder {
 public:
  Builder(const ModelConfig& model, const ModelGraphOptions& options, Costs& costs)
      : model_(model), options_(options), tape_(options, costs) {
    slice_ = {.tokens = static_cast<double>(options.batch) * options.sequence_length,
              .sequence_length = options.sequence_length,
              .bytes_per_element = options.bytes_per_element};
  }

  std::vector<Instruction> Build() {
    std::string memory;  // What the encoder gives.
    std::string x = Embed(model_.encoder_layers > 0 ? "encoder_embedding" : "embedding");
    for (int i = 0; i < model_.layers(); ++i) {
      if (i > 0 && i == model_.encoder_layers) {
        memory = Norm("encoder_norm", x);
        x = Embed("embedding");
      }
      x = LayerAt(i, x, memory);
    }
    const BlockWork head = HeadWork(model_, slice_);
    x = Norm("norm", x);
    const std::string logits = Linears("head", x, head.linears);
    tape_.Add({"loss", InstructionOp::kOther, {logits}, Moved(Only(head, Kernel::kCrossEntropy)), {kLossBytes}});
    return tape_.Finish();
  }

 private:
  static StepWork Moved(std::vector<MovedWork> moved) { return {.block = {.moved = std::move(moved)}}; }
  static std::vector<MovedWork> Only(const BlockWork& block, Kernel kernel) {
    std::vector<MovedWork> only;
    std::ranges::copy_if(block.moved, std::back_inserter(only),
                         [kernel](const MovedWork& moved) { return moved.kernel == kernel; });
    return only;
  }
  static constexpr double kLossBytes = 4;
  double RowBytes(double features) const { return slice_.tokens * features * options_.bytes_per_element; }
  double XBytes() const { return RowBytes(model_.model_dim); }
  // Of each token and choice an expert, a slot and a weight.
  double PairBytes() const { return slice_.tokens * model_.top_k * (2 * sizeof(int32_t) + sizeof(float)); }

  std::string Embed(const std::string& id) {
    return tape_.Add({id,
                      InstructionOp::kOther,
                      {"tokens"},
                      {.block = EmbeddingWork(model_, slice_)},
                      {XBytes()},
                      /*weights=*/true,
                      1.0 * model_.vocab * model_.model_dim});
  }
  std::string Norm(const std::string& id, const std::string& x) {
    return tape_.Add({id,
                      InstructionOp::kLayerNorm,
                      {x},
                      Moved(Only(AroundExpertsWork(model_, slice_), Kernel::kNorm)),
                      {XBytes()}});
  }
  std::string Linears(const std::string& id, const std::string& x, std::vector<LinearWork> linears) {
    double features = 0, parameters = 0;
    for (const LinearWork& linear : linears) {
      features += linear.out_features;
      parameters += 1.0 * linear.in_features * linear.out_features;
    }
    return tape_.Add({id,
                      InstructionOp::kMatmul,
                      {x},
                      {.block = {.linears = std::move(linears)}},
                      {RowBytes(features)},
                      /*weights=*/true,
                      parameters});
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
    return tape_.Add({id, InstructionOp::kElementwise, std::move(inputs), Moved({sum}), {XBytes()}});
  }

  std::string LayerAt(int i, const std::string& x, const std::string& memory) {
    const std::string name = StrCat("layer", i, ".");
    std::string y = Attention(name, Norm(name + "norm1", x), i);
    y = Sum(name + "add1", {x, y});
    if (!memory.empty()) {
      y = Sum(name + "add_cross", {y, CrossAttention(name + "cross_", Norm(name + "cross_norm", y), memory)});
    }
    const std::string normed = Norm(name + "norm2", y);
    Tensors parts =
        model_.moe_layer[i] ? Experts(name, normed) : Tensors{Network(name, normed, DenseBlockWork(model_, slice_))};
    parts.insert(parts.begin(), y);
    return Sum(name + "add2", parts);
  }

  // Projections, what turns queries and keys by their position, scores and values, and the last projection, as
  // `layout` and `step` count them.
  std::string Attention(const std::string& name, const std::string& x, int layer) {
    RankSlice slice = slice_;
    if (!model_.windowed_layer.empty() && model_.windowed_layer[layer]) slice.window = model_.window;
    BlockWork block = AttentionBlockWork(model_, slice);
    // A mask that hides nothing leaves no block out.
    if (layer < model_.encoder_layers) block.attention->flops *= 2;
    const LinearWork out = block.linears.back();
    block.linears.pop_back();
    std::string read = Linears(name + "qkv", x, block.linears);
    std::vector<MovedWork> turned = block.moved;
    turned.erase(turned.begin());  // The norm before attention, which is an instruction of its own.
    std::erase_if(turned, [](const MovedWork& moved) { return moved.kernel == Kernel::kResidual; });
    double read_features = 0;
    for (const LinearWork& linear : block.linears) read_features += linear.out_features;
    read = tape_.Add(
        {name + "rotary", InstructionOp::kElementwise, {read}, Moved(std::move(turned)), {RowBytes(read_features)}});
    const std::string y = tape_.Add({name + "attention",
                                     InstructionOp::kAttention,
                                     {read},
                                     {.block = {.attention = block.attention}},
                                     {RowBytes(out.in_features)}});
    return Linears(name + "out", y, {out});
  }

  // To the encoder's output, every token of which each token sees.
  std::string CrossAttention(const std::string& name, const std::string& x, const std::string& memory) {
    AttentionWork attention = *AttentionBlockWork(model_, slice_).attention;
    attention.flops *= 2;
    const double all_heads = 1.0 * model_.heads * model_.head_dim;
    const Tensors read = {
        Linears(name + "q", x, {Linear(model_.model_dim, all_heads)}),
        Linears(name + "kv", memory, {Linear(model_.model_dim, 2.0 * model_.kv_heads * model_.head_dim)})};
    const std::string y = tape_.Add({name + "attention",
                                     InstructionOp::kAttention,
                                     read,
                                     {.block = {.attention = attention}},
                                     {RowBytes(all_heads)}});
    return Linears(name + "out", y, {Linear(all_heads, model_.model_dim)});
  }

  std::string Network(const std::string& name, const std::string& x, const BlockWork& block) {
    const std::string up = Linears(name + "up", x, {block.linears.front()});
    const std::string activated = tape_.Add({name + "activation",
                                             InstructionOp::kElementwise,
                                             {up},
                                             Moved(Only(block, Kernel::kActivation)),
                                             {RowBytes(block.linears.back().in_features)}});
    return Linears(name + "down", activated, {block.linears.back()});
  }

  // The experts' output, and the shared expert's, which is computed while tokens are on their way.
  Tensors Experts(const std::string& name, const std::string& x) {
    const double slots = model_.top_k * options_.capacity_factor * slice_.tokens;
    const double bytes = slots * model_.model_dim * options_.bytes_per_element;
    const auto kernel = [](Kernel kernel, double size) { return StepWork{.kernel = kernel, .kernel_size = size}; };
    const StepWork permute = kernel(Kernel::kPermute, bytes), exchange = {.exchanged_bytes = bytes};
    const std::string gate = tape_.Add({name + "gate",
                                        InstructionOp::kGate,
                                        {x},
                                        kernel(Kernel::kGate, XBytes()),
                                        {PairBytes()},
                                        /*weights=*/true,
                                        1.0 * model_.model_dim * model_.experts});
    // Its second output says where each slot came from and with what weight, which combine reads.
    Step dispatch = {name + "dispatch", InstructionOp::kDispatch, {x, gate}, permute, {bytes, PairBytes()}};
    const std::string sources = Tape::OutputOf(dispatch, 1);
    const std::string sent = tape_.Add(dispatch);
    const std::string got = tape_.Add({name + "all_to_all1", InstructionOp::kAllToAll, {sent}, exchange, {bytes}});
    Tensors outputs;
    if (model_.shared_hidden_dim > 0) outputs = {Network(name + "shared_", x, SharedExpertWork(model_, slice_))};
    const double local_experts = 1.0 * model_.experts / options_.expert_parallel;
    const StepWork experts = kernel(Kernel::kExpertGemm, 2 * slots * ExpertParameters(model_));
    const std::string made = tape_.Add({name + "experts",
                                        InstructionOp::kExpert,
                                        {got},
                                        experts,
                                        {bytes},
                                        /*weights=*/true,
                                        local_experts * ExpertParameters(model_)});
    const std::string returned = tape_.Add({name + "all_to_all2", InstructionOp::kAllToAll, {made}, exchange, {bytes}});
    outputs.push_back(tape_.Add({name + "combine", InstructionOp::kCombine, {returned, sources}, permute, {XBytes()}}));
    return outputs;
  }

  const ModelConfig& model_;
  const ModelGraphOptions& options_;
  Tape tape_;
  RankSlice slice_;
};

Status Bad(const char* what, const std::string& found, const std::string& expected) {
  return InvalidInput(StrCat(what, ": found ", found, ", expected ", expected));
}

Status CheckOptions(const ModelConfig& model, const ModelGraphOptions& options) {
  const auto whole = [](const char* what, int value, int most) {
    if (value >= 1 && value <= most) return OkStatus();
    return Bad(what, StrCat(value), StrCat("a whole number of 1 to ", most));
  };
  if (model.moe_layers() == 0) return Bad("model", "no layer of experts", "a Mixture-of-Experts model");
  RETURN_IF_ERROR(whole("batch", options.batch, 1 << 24));
  RETURN_IF_ERROR(whole("sequence length", options.sequence_length, 1 << 24));
  if (const double tokens = static_cast<double>(options.batch) * options.sequence_length; tokens > kMostTokens) {
    return Bad("batch × sequence length", StrCat(tokens), StrCat("at most ", kMostTokens, " tokens"));
  }
  RETURN_IF_ERROR(whole("expert parallel", options.expert_parallel, model.experts));
  if (model.experts % options.expert_parallel != 0) {
    return Bad("expert parallel", StrCat(options.expert_parallel),
               StrCat("a divisor of the ", model.experts, " experts"));
  }
  RETURN_IF_ERROR(whole("ranks per node", options.ranks_per_node, options.expert_parallel));
  if (options.gpus != 0 && (options.gpus < options.expert_parallel || options.gpus % options.expert_parallel != 0)) {
    return Bad("gpus", StrCat(options.gpus),
               StrCat("a multiple of the ", options.expert_parallel, " of expert parallel"));
  }
  RETURN_IF_ERROR(whole("max parts", options.max_parts, kMostParts));
  if (!(std::isfinite(options.capacity_factor) && options.capacity_factor > 0)) {
    return Bad("capacity factor", StrCat(options.capacity_factor), "a finite number above 0");
  }
  if (options.bytes_per_element != 2 && options.bytes_per_element != 4) {
    return Bad("bytes per element", StrCat(options.bytes_per_element), "2 or 4");
  }
  const auto seconds = [](const char* what, double value) {
    if (std::isfinite(value) && value >= 0) return OkStatus();
    return Bad(what, StrCat(value), "a finite number of seconds, at least 0");
  };
  RETURN_IF_ERROR(seconds("group", options.limits.group_s));
  RETURN_IF_ERROR(seconds("max range", options.limits.max_range_s));
  if (options.paper_limits && (options.limits.group_s > 0 || options.limits.max_range_s > 0)) {
    return Bad("paper limits", "others beside them", "those of the paper or one's own");
  }
  if (options.gate == GateKind::kSwitch && model.top_k != 1) {
    return Bad("gate", "SWITCH", StrCat("another, because the model chooses ", model.top_k, " experts for a token"));
  }
  return OkStatus();
}

double ForwardS(const TrainingGraph& graph) {
  double forward_s = 0;
  for (const Instruction& one : graph.instructions) forward_s += one.phase == Pass::kForward ? *one.time_s : 0;
  return forward_s;
}

}  // namespace

StatusOr<TrainingGraph> TrainingGraphOf(const ModelConfig& model, const ModelGraphOptions& options,
                                        const Profile& profile, PriceNotes& notes) {
  RETURN_IF_ERROR(CheckOptions(model, options));
  Costs costs(model, options, profile);
  TrainingGraph graph = {.instructions = Builder(model, options, costs).Build(), .max_parts = options.max_parts};
  graph.workload = costs.workload();
  RETURN_IF_ERROR(costs.Missing());
  notes.Merge(costs.notes());
  const RangeLimits limits = options.paper_limits ? LimitsOfPaper(ForwardS(graph), model.moe_layers()) : options.limits;
  graph.group_s = limits.group_s;
  graph.max_range_s = limits.max_range_s;
  RETURN_IF_ERROR(ValidateTrainingGraph(graph));
  return graph;
}

}  // namespace moeplan::planner
