#include "models/training/model_graph.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "models/measurement/cost_key.h"
#include "models/text.h"

namespace moeplan {
namespace {

using Tensors = std::vector<std::string>;

constexpr double kMostTokens = 1 << 30;
constexpr int kGroupsPerStretch = 5;  // Lancet §7.

// What an instruction works on: bytes or flops of a kernel or of the all-to-all over EP.
struct Work {
  enum class Kind { kNothing, kFlops, kCopy, kGate, kPermute, kExchange } kind = Kind::kNothing;
  double size = 0;
};

// One instruction of the forward pass, and what its way back needs.
struct Step {
  std::string id;
  InstructionOp op = InstructionOp::kOther;
  Tensors activations;
  Work work;
  bool weights = false;
  double back = 1;  // Of the gradient of its inputs, in its own work.
  int outputs = 1;
};

class Costs {
 public:
  Costs(const ModelConfig& model, const ModelGraphOptions& options, const Profile& profile)
      : options_(options), pricer_(profile) {
    layer_ = {.model_dim = model.model_dim,
              .hidden_dim = model.expert_hidden_dim,
              .bytes_per_element = options.bytes_per_element,
              .expert_matrices = model.ffn_matrices()};
    layout_ = {.expert_parallel = options.expert_parallel};
  }

  // `product` of what counts flops: the product itself, or one of its gradients.
  double TimeS(const Work& work, double share, Kernel product = Kernel::kExpertGemm) {
    switch (work.kind) {
      case Work::Kind::kNothing: return 0;
      case Work::Kind::kFlops: return KernelS(product, work.size * share);
      case Work::Kind::kCopy: return KernelS(Kernel::kDeviceCopy, work.size * share);
      case Work::Kind::kGate: return KernelS(Kernel::kGate, work.size * share);
      case Work::Kind::kPermute: return KernelS(Kernel::kPermute, work.size * share);
      case Work::Kind::kExchange: return pricer_.Price(ExchangeKey(), work.size * share).time_s;
    }
    return 0;
  }

  Status Missing() const {
    const std::vector<CostKey> missing = pricer_.missing();
    return missing.empty() ? OkStatus() : NotFound(MissingReason(missing, layout_));
  }
  const PriceNotes& notes() const { return pricer_.notes(); }

 private:
  double KernelS(Kernel kernel, double size) { return pricer_.Price(KeyOf(kernel, layer_, layout_), size).time_s; }
  CollectiveKey ExchangeKey() const {
    return {.collective = Collective::kAllToAll,
            .group = {options_.expert_parallel, options_.ranks_per_node},
            .bytes_per_element = options_.bytes_per_element};
  }

  const ModelGraphOptions& options_;
  Pricer pricer_;
  Layer layer_;
  Layout layout_;
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
    SetTimes(step.work, one);
    for (int k = 1; k <= options_.max_parts; ++k) {
      one.part_times_s.push_back(k == 1 ? *one.time_s : costs_.TimeS(step.work, 1.0 / k));
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
  void SetTimes(const Work& work, Instruction& one, double times = 1, Kernel product = Kernel::kExpertGemm) {
    one.time_s = costs_.TimeS({work.kind, work.size * times}, 1, product);
    if (work.kind != Work::Kind::kExchange) return;
    one.bytes = work.size;
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
    SetTimes(step.work, back, step.back, step.weights ? Kernel::kExpertInputGradient : Kernel::kExpertGemm);
    if (!back.outputs.empty()) instructions_.push_back(std::move(back));
    if (!step.weights) return;
    Instruction weights = {.id = step.id + ".dw", .op = step.op, .phase = Pass::kBackward, .inputs = gradients};
    Append(step.activations, weights.inputs);
    weights.outputs = {StrCat("d(", step.id, ".w)")};
    weights.weight_gradient = true;
    SetTimes(step.work, weights, 1, Kernel::kExpertWeightGradient);
    instructions_.push_back(std::move(weights));
  }

  static void Append(const Tensors& more, Tensors& tensors) { tensors.insert(tensors.end(), more.begin(), more.end()); }

  const ModelGraphOptions& options_;
  Costs& costs_;
  std::vector<Step> steps_;
  std::vector<Instruction> instructions_;
  std::set<std::string> made_;  // Tensors of the forward pass.
  std::map<std::string, Tensors> gradients_of_;
};

class Builder {
 public:
  Builder(const ModelConfig& model, const ModelGraphOptions& options, Costs& costs)
      : model_(model), options_(options), tape_(options, costs) {
    tokens_ = static_cast<double>(options.batch) * options.sequence_length;
    row_bytes_ = static_cast<double>(model.model_dim) * options.bytes_per_element;
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
    x = Norm("norm", x);
    const std::string logits = Matmul("head", x, static_cast<double>(model_.vocab) * model_.model_dim);
    tape_.Add({"loss", InstructionOp::kOther, {logits}, Copy(tokens_ * model_.vocab * options_.bytes_per_element)});
    return tape_.Finish();
  }

 private:
  static Work Copy(double bytes) { return {Work::Kind::kCopy, bytes}; }
  double XBytes() const { return tokens_ * row_bytes_; }

  std::string Embed(const std::string& id) {
    return tape_.Add({id, InstructionOp::kOther, {"tokens"}, Copy(XBytes()), /*weights=*/true});
  }
  std::string Norm(const std::string& id, const std::string& x) {
    return tape_.Add({id, InstructionOp::kLayerNorm, {x}, Copy(XBytes())});
  }
  std::string Matmul(const std::string& id, const std::string& x, double parameters) {
    const Work work = {Work::Kind::kFlops, 2 * tokens_ * parameters};
    return tape_.Add({id, InstructionOp::kMatmul, {x}, work, /*weights=*/true});
  }
  // Reads all of `inputs`, writes one: a copy reads as much as it writes.
  std::string Sum(const std::string& id, Tensors inputs) {
    const double bytes = XBytes() * (static_cast<double>(inputs.size()) + 1) / 2;
    return tape_.Add({id, InstructionOp::kElementwise, std::move(inputs), Copy(bytes)});
  }

  std::string LayerAt(int i, const std::string& x, const std::string& memory) {
    const bool in_encoder = i < model_.encoder_layers;
    const std::string name = StrCat("layer", i, ".");
    std::string y = Attention(name, Norm(name + "norm1", x), "", /*causal=*/!in_encoder);
    y = Sum(name + "add1", {x, y});
    if (!memory.empty()) {
      y = Sum(name + "add_cross",
              {y, Attention(name + "cross_", Norm(name + "cross_norm", y), memory, /*causal=*/false)});
    }
    const std::string normed = Norm(name + "norm2", y);
    Tensors parts =
        model_.moe_layer[i] ? Experts(name, normed) : Tensors{FeedForward(name, normed, model_.dense_hidden_dim)};
    parts.insert(parts.begin(), y);
    return Sum(name + "add2", parts);
  }

  // Keys and values from `memory`, where there is one.
  std::string Attention(const std::string& name, const std::string& x, const std::string& memory, bool causal) {
    const LatentAttention& latent = model_.latent_attention;
    const bool is_latent = latent.kv_rank > 0;
    const double value_dim = is_latent ? latent.value_head_dim : model_.head_dim;
    const double key_dim = is_latent ? latent.nope_head_dim + latent.rope_head_dim : model_.head_dim;
    const double out = static_cast<double>(model_.heads) * value_dim * model_.model_dim;
    Tensors read;
    if (memory.empty()) {
      read = {Matmul(name + "qkv", x, AttentionParameters(model_) - out)};
    } else {
      const double key_value = 2.0 * model_.kv_heads * model_.head_dim * model_.model_dim;
      read = {Matmul(name + "q", x, out), Matmul(name + "kv", memory, key_value)};
    }
    const double pairs = tokens_ * options_.sequence_length * (causal ? 0.5 : 1);
    const Work work = {Work::Kind::kFlops, 2 * pairs * model_.heads * (key_dim + value_dim)};
    const std::string y =
        tape_.Add({name + "attention", InstructionOp::kAttention, read, work, /*weights=*/false, /*back=*/2});
    return Matmul(name + "out", y, out);
  }

  std::string FeedForward(const std::string& name, const std::string& x, double hidden_dim) {
    const double one = hidden_dim * model_.model_dim, inner = model_.ffn_matrices() - 1;
    const std::string up = Matmul(name + "up", x, inner * one);
    const double bytes = tokens_ * hidden_dim * options_.bytes_per_element * (inner + 1) / 2;
    const std::string activated = tape_.Add({name + "activation", InstructionOp::kElementwise, {up}, Copy(bytes)});
    return Matmul(name + "down", activated, one);
  }

  // The experts' output, and the shared expert's, which is computed while tokens are on their way.
  Tensors Experts(const std::string& name, const std::string& x) {
    const double slots = model_.top_k * options_.capacity_factor * tokens_, bytes = slots * row_bytes_;
    const Work permute = {Work::Kind::kPermute, bytes}, exchange = {Work::Kind::kExchange, bytes};
    const std::string gate =
        tape_.Add({name + "gate", InstructionOp::kGate, {x}, {Work::Kind::kGate, XBytes()}, /*weights=*/true});
    // Its second output says where each slot came from and with what weight, which combine reads.
    Step dispatch = {name + "dispatch", InstructionOp::kDispatch, {x, gate}, permute};
    dispatch.outputs = 2;
    const std::string sources = Tape::OutputOf(dispatch, 1);
    const std::string sent = tape_.Add(dispatch);
    const std::string got = tape_.Add({name + "all_to_all1", InstructionOp::kAllToAll, {sent}, exchange});
    Tensors outputs;
    if (model_.shared_hidden_dim > 0) outputs = {FeedForward(name + "shared_", x, model_.shared_hidden_dim)};
    const Work experts = {Work::Kind::kFlops, 2 * slots * ExpertParameters(model_)};
    const std::string made = tape_.Add({name + "experts", InstructionOp::kExpert, {got}, experts, /*weights=*/true});
    const std::string returned = tape_.Add({name + "all_to_all2", InstructionOp::kAllToAll, {made}, exchange});
    outputs.push_back(tape_.Add({name + "combine", InstructionOp::kCombine, {returned, sources}, permute}));
    return outputs;
  }

  const ModelConfig& model_;
  const ModelGraphOptions& options_;
  Tape tape_;
  double tokens_ = 0, row_bytes_ = 0;
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

}  // namespace moeplan
