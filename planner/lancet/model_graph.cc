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
constexpr int kGroupsPerStretch = 5;  // Lancet §7.

// What an instruction does: a part of a transformer's block, a kernel of the MoE layer, or its exchange.
struct Work {
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
  Work work;
  bool weights = false;
  int outputs = 1;
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

  double TimeS(const Work& work, double share, Side side) {
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
      const Kernel kernel = *work.kernel == Kernel::kExpertGemm ? ExpertProductOf(side) : *work.kernel;
      time_s += pricer_.Price(KeyOf(kernel, layer_, layout_), share * work.kernel_size).time_s;
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
    for (int i = 0; i < step.outputs; ++i) one.outputs.push_back(OutputOf(step, i));
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
  static std::string OutputOf(const Step& step, int i) {
    return i == 0 ? step.id + ".y" : StrCat(step.id, ".y", i + 1);
  }

  std::vector<Instruction> Finish() {
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) AddBack(*step);
    return std::move(instructions_);
  }

 private:
  void SetTimes(const Work& work, Side side, Instruction& one) {
    one.time_s = costs_.TimeS(work, 1, side);
    if (work.exchanged_bytes <= 0) return;
    one.bytes = work.exchanged_bytes;
    one.group_size = options_.expert_parallel;
    one.ranks_per_node = options_.ranks_per_node;
  }

  void AddBack(const Step& step) {
    Tensors gradients;
    for (int i = 0; i < step.outputs; ++i) {
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
    instructions_.push_back(std::move(weights));
  }

  static void Append(const Tensors& more, Tensors& tensors) { tensors.insert(tensors.end(), more.begin(), more.end()); }

  const ModelGraphOptions& options_;
  Costs& costs_;
  std::vector<Step> steps_;
  std::vector<Instruction> instructions_;
  std::set<std::string> made_;  // Every tensor that the forward pass writes.
  std::map<std::string, Tensors> gradients_of_;
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
    tape_.Add({"loss", InstructionOp::kOther, {logits}, Moved(Only(head, Kernel::kCrossEntropy))});
    return tape_.Finish();
  }

 private:
  static Work Moved(std::vector<MovedWork> moved) { return {.block = {.moved = std::move(moved)}}; }
  static std::vector<MovedWork> Only(const BlockWork& block, Kernel kernel) {
    std::vector<MovedWork> only;
    std::ranges::copy_if(block.moved, std::back_inserter(only),
                         [kernel](const MovedWork& moved) { return moved.kernel == kernel; });
    return only;
  }
  double XBytes() const { return slice_.tokens * model_.model_dim * options_.bytes_per_element; }

  std::string Embed(const std::string& id) {
    return tape_.Add({id,
                      InstructionOp::kOther,
                      {"tokens"},
                      {.block = EmbeddingWork(model_, slice_)},
                      /*weights=*/true});
  }
  std::string Norm(const std::string& id, const std::string& x) {
    return tape_.Add(
        {id, InstructionOp::kLayerNorm, {x}, Moved(Only(AroundExpertsWork(model_, slice_), Kernel::kNorm))});
  }
  std::string Linears(const std::string& id, const std::string& x, std::vector<LinearWork> linears) {
    return tape_.Add({id, InstructionOp::kMatmul, {x}, {.block = {.linears = std::move(linears)}}, /*weights=*/true});
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
    return tape_.Add({id, InstructionOp::kElementwise, std::move(inputs), Moved({sum})});
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
    read = tape_.Add({name + "rotary", InstructionOp::kElementwise, {read}, Moved(std::move(turned))});
    const std::string y =
        tape_.Add({name + "attention", InstructionOp::kAttention, {read}, {.block = {.attention = block.attention}}});
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
    const std::string y =
        tape_.Add({name + "attention", InstructionOp::kAttention, read, {.block = {.attention = attention}}});
    return Linears(name + "out", y, {Linear(all_heads, model_.model_dim)});
  }

  std::string Network(const std::string& name, const std::string& x, const BlockWork& block) {
    const std::string up = Linears(name + "up", x, {block.linears.front()});
    const std::string activated =
        tape_.Add({name + "activation", InstructionOp::kElementwise, {up}, Moved(Only(block, Kernel::kActivation))});
    return Linears(name + "down", activated, {block.linears.back()});
  }

  // The experts' output, and the shared expert's, which is computed while tokens are on their way.
  Tensors Experts(const std::string& name, const std::string& x) {
    const double slots = model_.top_k * options_.capacity_factor * slice_.tokens;
    const double bytes = slots * model_.model_dim * options_.bytes_per_element;
    const auto kernel = [](Kernel kernel, double size) { return Work{.kernel = kernel, .kernel_size = size}; };
    const Work permute = kernel(Kernel::kPermute, bytes), exchange = {.exchanged_bytes = bytes};
    const std::string gate =
        tape_.Add({name + "gate", InstructionOp::kGate, {x}, kernel(Kernel::kGate, XBytes()), /*weights=*/true});
    // Its second output says where each slot came from and with what weight, which combine reads.
    Step dispatch = {name + "dispatch", InstructionOp::kDispatch, {x, gate}, permute};
    dispatch.outputs = 2;
    const std::string sources = Tape::OutputOf(dispatch, 1);
    const std::string sent = tape_.Add(dispatch);
    const std::string got = tape_.Add({name + "all_to_all1", InstructionOp::kAllToAll, {sent}, exchange});
    Tensors outputs;
    if (model_.shared_hidden_dim > 0) outputs = {Network(name + "shared_", x, SharedExpertWork(model_, slice_))};
    const Work experts = kernel(Kernel::kExpertGemm, 2 * slots * ExpertParameters(model_));
    const std::string made = tape_.Add({name + "experts", InstructionOp::kExpert, {got}, experts, /*weights=*/true});
    const std::string returned = tape_.Add({name + "all_to_all2", InstructionOp::kAllToAll, {made}, exchange});
    outputs.push_back(tape_.Add({name + "combine", InstructionOp::kCombine, {returned, sources}, permute}));
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
  RETURN_IF_ERROR(whole("max parts", options.max_parts, kMostParts));
  if (!(std::isfinite(options.capacity_factor) && options.capacity_factor > 0)) {
    return Bad("capacity factor", StrCat(options.capacity_factor), "a finite number above 0");
  }
  if (options.bytes_per_element != 2 && options.bytes_per_element != 4) {
    return Bad("bytes per element", StrCat(options.bytes_per_element), "2 or 4");
  }
  if (options.gate == GateKind::kSwitch && model.top_k != 1) {
    return Bad("gate", "SWITCH", StrCat("another, because the model chooses ", model.top_k, " experts for a token"));
  }
  return OkStatus();
}

}  // namespace

StatusOr<TrainingGraph> TrainingGraphOf(const ModelConfig& model, const ModelGraphOptions& options,
                                        const Profile& profile, PriceNotes& notes) {
  RETURN_IF_ERROR(CheckOptions(model, options));
  Costs costs(model, options, profile);
  TrainingGraph graph = {.instructions = Builder(model, options, costs).Build(), .max_parts = options.max_parts};
  RETURN_IF_ERROR(costs.Missing());
  notes.Merge(costs.notes());
  double forward_s = 0;
  for (const Instruction& one : graph.instructions) forward_s += one.phase == Pass::kForward ? *one.time_s : 0;
  graph.max_range_s = forward_s / model.moe_layers();
  graph.group_s = graph.max_range_s / kGroupsPerStretch;
  RETURN_IF_ERROR(ValidateTrainingGraph(graph));
  return graph;
}

}  // namespace moeplan::planner
