#include "planner/lancet/model_graph.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "models/measurement/cost_key.h"
#include "models/step/layer_work.h"
#include "models/text.h"
#include "models/timeline/pricer.h"
#include "planner/layout/cost_book.h"
#include "planner/layout/layout_rules.h"
#include "planner/layout/layout_space.h"
#include "planner/layout/stages.h"

namespace moeplan::planner {
namespace {

using Tensors = std::vector<std::string>;

constexpr double kMostGraphTokens = 1 << 30;
constexpr int kMostDegree = 1 << 15, kMostRanks = 1 << 30;
constexpr const char* kLoss = "loss";
constexpr const char* kPassedOn = "passed_on";
constexpr double kBucketBytes = 25 << 20;  // Of gradients that are summed together: PyTorch's DDP, as it is set.

// Names a pass over an instruction: forward, or to one of its two gradients where it has weights. An instruction
// without weights has the first alone.
enum class Side { kForward, kInputGradient, kWeightGradient };

// Says what ranks exchange on the way forward and on the way back: a collective, or nothing, and the tensor is passed
// on as it is. Bytes are counted as nccl-tests counts them, so they are the same for an exchange and its reverse.
struct Exchange {
  std::optional<InstructionOp> forward, backward;
  GroupShape group;
  double bytes = 0;
  int stride = 0;  // How far apart neighbours of the group are in rank order; 0: not told.
  // Whether what was exchanged is not kept for the way back, so that the forward collective runs once more there.
  bool again = false;
  // Whether it is with another pipeline stage. On a way without a collective what came before is there in no time.
  bool between_stages = false;

  bool passes_on(std::optional<InstructionOp> collective) const { return !collective && !between_stages; }
};

// Says what an instruction does: a part of a transformer's block, a kernel of the MoE layer, or an exchange.
struct StepWork {
  BlockWork block;
  std::optional<Kernel> kernel;  // GATE, PERMUTE or EXPERT_GEMM, on so much as the kernel counts.
  double kernel_size = 0;
  std::optional<Exchange> exchange;
  // Rows that come back from ranks which share experts are summed, by PERMUTE on so many bytes, on one of both ways.
  double shards_bytes = 0;
  Side shards_side = Side::kForward;
};

// One instruction of the forward pass, and what its way back needs.
struct Step {
  std::string id;
  InstructionOp op = InstructionOp::kOther;
  Tensors activations;
  StepWork work;
  std::vector<double> output_bytes;
  bool weights = false;
  double parameters = 0;               // Of a rank.
  std::optional<Exchange> weight_sum;  // Sums the weights' gradient, where each rank has a part of its terms.
};

class Costs {
 public:
  Costs(const ModelConfig& model, const ModelGraphOptions& options, const Profile& profile)
      : options_(options),
        layer_(RoutedLayerOf(model, options)),
        layout_{.tensor_parallel = options.tensor_parallel,
                .expert_parallel = options.expert_parallel,
                .expert_sharding_parallel = options.expert_sharding_parallel,
                .context_parallel = options.context_parallel},
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
    if (SumsShards(work, side)) kernels.push_back({KeyOf(Kernel::kPermute, layer_, layout_), work.shards_bytes});
    return kernels;
  }

  double CollectiveS(InstructionOp op, const GroupShape& group, double bytes, int stride = 0) {
    if (op == InstructionOp::kSend) return book_.SendS(group, bytes, stride);
    return book_.CollectiveS(*CollectiveOf(op), group, bytes, stride);
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
    if (SumsShards(work, side)) {
      time_s += pricer_.Price(KeyOf(Kernel::kPermute, layer_, layout_), share * work.shards_bytes).time_s;
    }
    if (!work.exchange) return time_s;
    const Exchange& exchange = *work.exchange;
    const std::optional<InstructionOp> op = side == Side::kForward ? exchange.forward : exchange.backward;
    return op ? time_s + CollectiveS(*op, exchange.group, share * exchange.bytes, exchange.stride) : time_s;
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
  static bool SumsShards(const StepWork& work, Side side) { return work.shards_bytes > 0 && side == work.shards_side; }
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

// Says where the ranks of a graph lie.
struct Placement {
  LayoutPoint point;
  int gpus_per_node = 1;
};

// Says whether a graph is a step of a whole model, or one micro-batch of it as GraphOfRun says.
enum class Counts { kStep, kMicroBatch };

// Writes steps down forward, then walks back over them.
class Tape {
 public:
  Tape(const ModelGraphOptions& options, const Placement& placement, Counts counts, Costs& costs)
      : options_(options),
        counts_(counts),
        costs_(costs),
        dense_{.replicas = DenseReplicas(placement.point, placement.gpus_per_node)},
        experts_{.prefix = "expert_", .replicas = ExpertReplicas(placement.point, placement.gpus_per_node)} {
    if (!ReplicasHaveOwnStream()) return;
    dense_.stride = options.tensor_parallel;
    experts_.stride = options.expert_ranks();
  }

  // Begins a part of the model, which reaches up to the next one; with ZeRO-3 its weights are gathered together.
  void StartPart(const std::string& name) {
    EndPart();
    parts_.push_back({.name = name, .first_step = steps_.size(), .first_instruction = instructions_.size()});
  }

  // The step's first output.
  std::string Add(Step step) {
    const std::string output = OutputOf(step, 0);
    if (const auto& exchange = step.work.exchange; exchange && exchange->passes_on(exchange->forward)) {
      passed_on_[output] = Made(step.activations.front());
      made_[output] = step.output_bytes.front();
    } else {
      AddForward(step);
    }
    if (step.work.exchange && step.work.exchange->again) gathered_[output].step = steps_.size();
    steps_.push_back(std::move(step));
    return output;
  }
  static std::string OutputOf(const Step& step, size_t i) {
    return i == 0 ? step.id + ".y" : StrCat(step.id, ".y", i + 1);
  }

  std::vector<Instruction> Finish() {
    EndPart();
    size_t part = parts_.size();
    for (size_t i = steps_.size(); i-- > 0;) {
      if (part == parts_.size() || i < parts_[part].first_step) StartPartBack(--part);
      AddBack(steps_[i]);
      if (counts_ == Counts::kMicroBatch) continue;
      for (Gradients* const of : {&dense_, &experts_}) {
        const bool full = CutsWeights() ? i == parts_[part].first_step : of->bucket_bytes >= kBucketBytes;
        if (full && of->bucket_bytes > 0) AddGradientSum(*of);
      }
    }
    if (counts_ == Counts::kMicroBatch) return std::move(instructions_);
    for (Gradients* const of : {&dense_, &experts_}) {
      if (of->bucket_bytes > 0) AddGradientSum(*of);
    }
    AddOptimizer();
    return std::move(instructions_);
  }

 private:
  // Weights that the ranks of a group have alike: how many there are on each, and gradients that wait to be summed.
  struct Gradients {
    std::string prefix;
    GroupShape replicas;
    int stride = 0;
    double parameters = 0;
    Tensors bucket;
    double bucket_bytes = 0;
    int sums = 0;
  };
  // Describes one all-gather of weights of a part of the model.
  struct Gather {
    std::string id;
    const Gradients* of = nullptr;
    double parameters = 0;
    Tensors weights;
    std::vector<double> weight_bytes;  // Of each.
  };
  struct Part {
    std::string name;  // In front of its instructions' names.
    size_t first_step = 0, first_instruction = 0;
    std::vector<Gather> gathers;
  };
  // Describes rows that were exchanged and not kept.
  struct Gathered {
    size_t step = 0;   // The step that exchanged them.
    std::string back;  // The tensor on the way back, once it is there.
  };

  static constexpr const char* kAgain = ".again";  // Behind the name of what is gathered for the second time.

  bool CutsWeights() const { return options_.zero_stage == kMaxZeroStage; }
  bool CutsOptimizer() const { return options_.zero_stage > 0; }
  // Whether other collectives are on the stream where sums of gradients are otherwise, and something waits for them.
  bool ReplicasHaveOwnStream() const {
    return CutsWeights() || options_.tensor_parallel > 1 || options_.context_parallel > 1;
  }
  Gradients& GradientsOf(const Step& step) { return step.op == InstructionOp::kExpert ? experts_ : dense_; }

  void AddForward(const Step& step) {
    Instruction one = {.id = step.id, .op = step.op, .inputs = Made(step.activations)};
    if (step.weights) one.inputs.push_back(WeightsOf(step));
    for (size_t i = 0; i < step.output_bytes.size(); ++i) one.outputs.push_back(OutputOf(step, i));
    one.output_bytes = step.output_bytes;
    for (size_t i = 0; i < one.outputs.size(); ++i) made_[one.outputs[i]] = one.output_bytes[i];
    if (step.op == InstructionOp::kGate) one.gate = options_.gate;
    SetTimes(step.work, Side::kForward, one);
    SetPartTimes([&](double share) { return costs_.TimeS(step.work, share, Side::kForward); }, one);
    instructions_.push_back(std::move(one));
  }

  void SetTimes(const StepWork& work, Side side, Instruction& one) {
    one.time_s = costs_.TimeS(work, 1, side);
    one.work = costs_.KernelsOf(work, side);
    if (!CollectiveOf(one.op)) return;
    if (one.op == InstructionOp::kSend && ReplicasHaveOwnStream()) one.stream = StreamKind::kInterNode;
    one.bytes = work.exchange->bytes;
    constexpr double kCountBytes = 4;  // Each rank says of each expert how many rows it sends.
    if (one.op == InstructionOp::kAllToAll) one.counts_bytes = kCountBytes * costs_.workload().layer.experts;
    one.group_size = work.exchange->group.size;
    one.ranks_per_node = work.exchange->group.ranks_per_node;
  }
  // `share_s` returns the time of a share of the work.
  template <typename ShareS>
  void SetPartTimes(ShareS share_s, Instruction& one) const {
    for (int k = 1; k <= options_.max_parts; ++k) one.part_times_s.push_back(k == 1 ? *one.time_s : share_s(1.0 / k));
  }

  static std::string WeightsOf(const Step& step) { return step.id + ".w"; }
  // Returns the tensor that an instruction makes, where steps only passed it on.
  std::string Made(const std::string& tensor) const {
    const auto passed_on = passed_on_.find(tensor);
    return passed_on == passed_on_.end() ? tensor : passed_on->second;
  }
  Tensors Made(Tensors tensors) const {
    for (std::string& tensor : tensors) tensor = Made(tensor);
    return tensors;
  }

  Tensors GradientsInto(const Step& step) {
    Tensors gradients;
    for (size_t i = 0; i < step.output_bytes.size(); ++i) Append(gradients_of_[OutputOf(step, i)], gradients);
    return gradients;
  }

  void AddBack(const Step& step) {
    const Tensors gradients = GradientsInto(step);
    const std::optional<Exchange>& exchange = step.work.exchange;
    if (exchange && exchange->passes_on(exchange->backward)) {
      return Append(gradients, gradients_of_[step.activations.front()]);
    }
    // An exchange only sends back what it got; the others look at what they read.
    Tensors kept, again;
    if (!exchange) ReadBack(step, gradients, kept, again);
    Instruction back = {.id = step.id + ".dx", .op = step.op, .phase = Pass::kBackward, .inputs = gradients};
    if (exchange) back.op = exchange->backward.value_or(InstructionOp::kOther);
    // Gradients from the stage after, which come when the rows are there.
    if (exchange && exchange->between_stages && gradients.empty()) back.inputs = {OutputOf(step, 0)};
    Append(kept, back.inputs);
    // A product's gradient of its input does not wait for rows that only that of its weights needs.
    if (step.op != InstructionOp::kMatmul) Append(again, back.inputs);
    if (step.weights && CutsWeights() && GradientsOf(step).replicas.size > 1) {
      back.inputs.push_back(WeightsOf(step) + kAgain);
    }
    for (const std::string& tensor : step.activations) {
      if (!made_.contains(tensor)) continue;
      back.outputs.push_back(StrCat("d(", tensor, ").", step.id));
      back.output_bytes.push_back(made_[tensor]);
      gradients_of_[tensor].push_back(back.outputs.back());
    }
    SetTimes(step.work, Side::kInputGradient, back);
    if (!back.outputs.empty() || back.op == InstructionOp::kSend) instructions_.push_back(std::move(back));
    if (!step.weights) return;
    Append(again, kept);
    AddWeightGradient(step, gradients, kept);
  }

  // Lists what a step read on its way forward: tensors that were kept, and those that are exchanged once more, which
  // begins when the gradients are there.
  void ReadBack(const Step& step, const Tensors& gradients, Tensors& kept, Tensors& again) {
    for (const std::string& tensor : step.activations) {
      const auto gathered = gathered_.find(tensor);
      if (gathered == gathered_.end()) {
        kept.push_back(Made(tensor));
        continue;
      }
      if (gathered->second.back.empty()) gathered->second.back = AddAgain(steps_[gathered->second.step], gradients);
      again.push_back(gathered->second.back);
    }
  }

  std::string AddAgain(const Step& step, const Tensors& gradients) {
    Instruction again = {.id = step.id + kAgain, .op = step.op, .phase = Pass::kBackward};
    again.inputs = Made(step.activations);
    Append(gradients, again.inputs);
    again.outputs = {again.id + ".y"};
    again.output_bytes = step.output_bytes;
    SetTimes(step.work, Side::kForward, again);
    instructions_.push_back(std::move(again));
    return instructions_.back().outputs.front();
  }

  void AddWeightGradient(const Step& step, const Tensors& gradients, const Tensors& read) {
    Instruction weights = {.id = step.id + ".dw", .op = step.op, .phase = Pass::kBackward, .inputs = gradients};
    Append(read, weights.inputs);
    weights.outputs = {StrCat("d(", step.id, ".w)")};
    weights.output_bytes = {step.parameters * options_.gradient_bytes};
    weights.weight_gradient = true;
    SetTimes(step.work, Side::kWeightGradient, weights);
    Gradients& of = GradientsOf(step);
    of.bucket.push_back(weights.outputs.front());
    of.bucket_bytes += step.parameters * options_.gradient_bytes;
    of.parameters += step.parameters;
    instructions_.push_back(std::move(weights));
    if (step.weight_sum) AddWeightSum(step, of);
  }

  // Sums the gradient's terms over the ranks that have them; the sum then waits in the place of this rank's terms.
  void AddWeightSum(const Step& step, Gradients& of) {
    Instruction sum = {.id = step.id + ".sum", .op = *step.weight_sum->forward, .phase = Pass::kBackward};
    sum.inputs = {of.bucket.back()};
    sum.outputs = {sum.id + ".y"};
    SetTimes({.exchange = step.weight_sum}, Side::kForward, sum);
    of.bucket.back() = sum.outputs.front();
    instructions_.push_back(std::move(sum));
  }

  // A collective of the replicas, beside what computes.
  Instruction OfReplicas(const Gradients& of, const std::string& id, InstructionOp op, double bytes, Tensors inputs) {
    Instruction one = {.id = id, .op = op, .phase = Pass::kBackward, .inputs = std::move(inputs)};
    one.time_s = counts_ == Counts::kStep ? costs_.CollectiveS(op, of.replicas, bytes, of.stride) : 0;
    one.bytes = bytes;
    one.group_size = of.replicas.size;
    one.ranks_per_node = of.replicas.ranks_per_node;
    if (ReplicasHaveOwnStream()) one.stream = StreamKind::kCopy;
    one.outputs = {one.id + ".y"};
    return one;
  }

  // Sums a bucket of gradients over its replicas: whole, or for each rank the part whose optimizer states it has.
  void AddGradientSum(Gradients& of) {
    const InstructionOp op = CutsOptimizer() ? InstructionOp::kReduceScatter : InstructionOp::kAllReduce;
    if (of.replicas.size == 1) {
      Append(of.bucket, finished_);
    } else {
      const std::string id = StrCat(of.prefix, "gradients.", ++of.sums);
      instructions_.push_back(OfReplicas(of, id, op, of.bucket_bytes, of.bucket));
      finished_.push_back(instructions_.back().outputs.front());
    }
    of.bucket_bytes = 0;
    of.bucket.clear();
  }

  // Gathers the part's weights in front of it, with ZeRO-3. That reads nothing which the graph makes, so it runs as
  // early as its stream has time, and the weights stay whole where the part is cut.
  void EndPart() {
    if (parts_.empty() || !CutsWeights()) return;
    Part& part = parts_.back();
    std::vector<Instruction> gathers;
    for (const Gradients* const of : {&dense_, &experts_}) {
      Gather gather = {.id = StrCat(part.name, of->prefix, "weights"), .of = of};
      for (size_t i = part.first_step; i < steps_.size(); ++i) {
        if (!steps_[i].weights || &GradientsOf(steps_[i]) != of) continue;
        gather.parameters += steps_[i].parameters;
        gather.weights.push_back(WeightsOf(steps_[i]));
        gather.weight_bytes.push_back(steps_[i].parameters * options_.bytes_per_element);
      }
      if (of->replicas.size == 1 || gather.parameters <= 0) continue;
      gathers.push_back(GatherOf(gather));
      gathers.back().phase = Pass::kForward;
      gathers.back().outputs = gather.weights;
      gathers.back().output_bytes = gather.weight_bytes;
      const auto share_s = [&](double share) {
        if (counts_ == Counts::kMicroBatch) return 0.0;
        return costs_.CollectiveS(InstructionOp::kAllGather, of->replicas, share * *gathers.back().bytes, of->stride);
      };
      SetPartTimes(share_s, gathers.back());
      part.gathers.push_back(std::move(gather));
    }
    instructions_.insert(instructions_.begin() + static_cast<std::ptrdiff_t>(part.first_instruction), gathers.begin(),
                         gathers.end());
  }
  Instruction GatherOf(const Gather& gather) {
    return OfReplicas(*gather.of, gather.id, InstructionOp::kAllGather, gather.parameters * options_.bytes_per_element,
                      {gather.id + ".shards"});
  }

  // Gathers the weights of the part before while this one is on its way back, and those of the last part when that way
  // begins.
  void StartPartBack(size_t part) {
    const Step& last = part + 1 < parts_.size() ? steps_[parts_[part + 1].first_step - 1] : steps_.back();
    Tensors begun = GradientsInto(last);
    if (begun.empty()) begun = {OutputOf(last, 0)};
    if (part + 1 == parts_.size()) GatherAgain(parts_[part], begun);
    if (part > 0) GatherAgain(parts_[part - 1], begun);
  }
  void GatherAgain(const Part& part, const Tensors& begun) {
    for (const Gather& gather : part.gathers) {
      Instruction again = GatherOf(gather);
      again.id += kAgain;
      Append(begun, again.inputs);
      again.outputs = gather.weights;
      again.output_bytes = gather.weight_bytes;
      for (std::string& tensor : again.outputs) tensor += kAgain;
      instructions_.push_back(std::move(again));
    }
  }

  void AddOptimizer() {
    Instruction step = {.id = "optimizer", .op = InstructionOp::kOther, .phase = Pass::kBackward, .inputs = finished_};
    const auto shards = [&](const Gradients& of) { return CutsOptimizer() ? of.replicas.size : 1; };
    SetTimes(costs_.Optimizer(dense_.parameters, shards(dense_), experts_.parameters, shards(experts_)), Side::kForward,
             step);
    step.outputs = {"optimizer.y"};
    instructions_.push_back(std::move(step));
    for (const Gradients* const of : {&dense_, &experts_}) {
      if (shards(*of) == 1 || CutsWeights() || of->parameters <= 0) continue;
      instructions_.push_back(OfReplicas(*of, of->prefix + "weights", InstructionOp::kAllGather,
                                         of->parameters * options_.bytes_per_element, {"optimizer.y"}));
    }
  }

  static void Append(const Tensors& more, Tensors& tensors) { tensors.insert(tensors.end(), more.begin(), more.end()); }

  const ModelGraphOptions& options_;
  const Counts counts_;
  Costs& costs_;
  std::vector<Step> steps_;
  std::vector<Part> parts_;
  std::vector<Instruction> instructions_;
  std::map<std::string, double> made_;  // The bytes of every tensor that the forward pass writes or passes on.
  std::map<std::string, std::string> passed_on_;  // To a tensor that an instruction makes.
  std::map<std::string, Gathered> gathered_;
  std::map<std::string, Tensors> gradients_of_;
  Gradients dense_, experts_;
  Tensors finished_;  // What the optimizer reads.
};

// Turns the options into a layout, and into a request for it, as `layout` and `step` have both.
Layout LayoutOf(const ModelGraphOptions& options) {
  return {.tensor_parallel = options.tensor_parallel,
          .expert_parallel = options.expert_parallel,
          .expert_sharding_parallel = options.expert_sharding_parallel,
          .context_parallel = options.context_parallel,
          .pipeline_parallel = options.pipeline_parallel,
          .data_parallel = std::max(1, options.stage_ranks() / (options.tensor_parallel * options.context_parallel))};
}
LayoutRequest RequestOf(const ModelConfig& model, const ModelGraphOptions& options) {
  LayoutRequest request;
  request.model = model;
  request.gpus = options.ranks();
  request.global_batch = static_cast<int>(
      std::min<long long>(std::numeric_limits<int>::max(), 1LL * options.batch * LayoutOf(options).data_parallel));
  request.sequence_length = options.sequence_length;
  request.zero_stage = options.zero_stage;
  request.gradient_bytes = options.gradient_bytes;
  request.sequence_parallel = options.sequence_parallel;
  request.capacity_factor = options.capacity_factor;
  request.bytes_per_element = options.bytes_per_element;
  request.stages = options.stages;
  return request;
}

// Layers of the pipeline's virtual stages, in its order.
std::vector<LayerRun> RunsOf(const LayoutRequest& request, int pipeline) {
  std::vector<LayerRun> runs;
  if (pipeline == 1) return {{.count = request.model.layers()}};
  int first = 0;
  for (const int layers : LayersOfStages(request, pipeline)) {
    runs.push_back({.first = first, .count = layers, .embeds = runs.empty(), .predicts = false});
    first += layers;
  }
  runs.back().predicts = true;
  return runs;
}

class Builder {
 public:
  Builder(const ModelConfig& model, const ModelGraphOptions& options, const Placement& placement, Counts counts,
          Costs& costs)
      : model_(model),
        options_(options),
        tape_(options, placement, counts, costs),
        slice_(SliceOf(RequestOf(model, options), placement.point)),
        tensor_group_(ShapeOf(Group::kTensor, placement.point.layout, placement.gpus_per_node)),
        expert_group_(options.expert_sharding_parallel > 1
                          ? ShapeOf(Group::kExpertShard, placement.point.layout, placement.gpus_per_node)
                          : GroupShape{options.expert_parallel, options.ranks_per_node}),
        context_group_(ContextGroup(placement.point, placement.gpus_per_node)),
        context_stride_(ContextStride(placement.point)),
        neighbours_(NeighbourStages(placement.point, placement.gpus_per_node)) {}

  std::vector<Instruction> Build(const LayerRun& run) {
    std::string memory;  // What the encoder gives.
    std::string x = run.embeds ? Embed(model_.encoder_layers > 0 ? "encoder_embedding" : "embedding")
                               : Received(/*passes_on=*/!run.predicts);
    for (int i = run.first; i < run.first + run.count; ++i) {
      if (i > 0 && i == model_.encoder_layers) {
        memory = Norm("encoder_norm", x);
        x = Embed("embedding");
      }
      x = LayerAt(i, x, memory);
    }
    if (!run.predicts) {
      PassOn(x, /*receives=*/!run.embeds);
      return tape_.Finish();
    }
    tape_.StartPart("head.");
    const BlockWork head = HeadWork(model_, slice_);
    x = Norm("norm", x);
    const std::string logits = Linears("head", AllRows("head_in", x), head.linears);
    tape_.Add({kLoss, InstructionOp::kOther, {logits}, Moved(Only(head, Kernel::kCrossEntropy)), {kLossBytes}});
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
  static constexpr double kLossBytes = 4, kSentBytes = 1;  // What stays of rows that were sent is that they were.
  double RowBytes(double features) const { return slice_.tokens * features * options_.bytes_per_element; }
  // Rows of the model's dimension: those that a tensor-parallel group holds, those of a rank between blocks, and those
  // that a rank's gate sees.
  double AllXBytes() const { return RowBytes(model_.model_dim); }
  double XBytes() const { return slice_.own_tokens() * model_.model_dim * options_.bytes_per_element; }
  double GatedTokens() const { return slice_.tokens / slice_.tensor_parallel; }
  double GatedXBytes() const { return GatedTokens() * model_.model_dim * options_.bytes_per_element; }
  // Of each token and choice an expert, a slot and a weight.
  double PairBytes() const { return GatedTokens() * model_.top_k * (2 * sizeof(int32_t) + sizeof(float)); }

  bool SharesLayers() const { return slice_.tensor_parallel > 1; }
  Exchange OverTensor(std::optional<InstructionOp> forward, std::optional<InstructionOp> backward) const {
    return {.forward = forward, .backward = backward, .group = tensor_group_, .bytes = AllXBytes(), .stride = 1};
  }
  std::string Exchanged(const std::string& id, const std::string& x, const Exchange& exchange, double output_bytes) {
    const InstructionOp op = exchange.forward.value_or(InstructionOp::kOther);
    return tape_.Add({id, op, {x}, {.exchange = exchange}, {output_bytes}});
  }
  // Returns all rows, for products whose columns are cut. Gradients of the rows are then sums over the ranks.
  std::string AllRows(const std::string& id, const std::string& x) {
    if (!SharesLayers()) return x;
    if (!slice_.sequence_parallel) {
      return Exchanged(id, x, OverTensor(std::nullopt, InstructionOp::kAllReduce), AllXBytes());
    }
    Exchange exchange = OverTensor(InstructionOp::kAllGather, InstructionOp::kReduceScatter);
    exchange.again = true;
    return Exchanged(id, x, exchange, AllXBytes());
  }
  // Sums rows over the ranks, each of which has some of the terms, and returns all rows or a rank's own.
  std::string Summed(const std::string& id, const std::string& y) {
    if (!SharesLayers()) return y;
    return Exchanged(id, y,
                     slice_.sequence_parallel ? OverTensor(InstructionOp::kReduceScatter, InstructionOp::kAllGather)
                                              : OverTensor(InstructionOp::kAllReduce, std::nullopt),
                     XBytes());
  }

  std::string Embed(const std::string& id) {
    tape_.StartPart(id + ".");
    const std::string x = tape_.Add({id,
                                     InstructionOp::kOther,
                                     {"tokens"},
                                     {.block = EmbeddingWork(model_, slice_)},
                                     {AllXBytes()},
                                     /*weights=*/true,
                                     1.0 * model_.vocab * model_.model_dim / slice_.tensor_parallel});
    return Summed(id + "_sum", x);
  }
  // A SEND of the rows between blocks, on the ways on which it is one.
  std::string BetweenStages(const std::string& id, const std::string& x, bool forward, bool backward,
                            double output_bytes) {
    const auto sends = [](bool does) { return does ? std::optional(InstructionOp::kSend) : std::nullopt; };
    const Exchange exchange = {.forward = sends(forward),
                               .backward = sends(backward),
                               .group = neighbours_,
                               .bytes = XBytes(),
                               .stride = options_.stage_ranks(),
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
    tape_.StartPart(name);
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
    std::string read = Linears(name + "qkv", AllRows(name + "qkv_in", x), block.linears);
    std::vector<MovedWork> turned = block.moved;
    turned.erase(turned.begin());  // The norm before attention, which is an instruction of its own.
    std::erase_if(turned, [](const MovedWork& moved) { return moved.kernel == Kernel::kResidual; });
    double read_features = 0;
    for (const LinearWork& linear : block.linears) read_features += linear.out_features;
    read = tape_.Add(
        {name + "rotary", InstructionOp::kElementwise, {read}, Moved(std::move(turned)), {RowBytes(read_features)}});
    Tensors attended = {read};
    if (options_.context_parallel > 1) attended.push_back(OtherContexts(name + "contexts", read));
    const std::string y = tape_.Add({name + "attention",
                                     InstructionOp::kAttention,
                                     std::move(attended),
                                     StepWork{.block = {.attention = block.attention}},
                                     {RowBytes(out.in_features)}});
    return Summed(name + "out_sum", Linears(name + "out", y, {out}));
  }
  // Returns the keys and values of all contexts.
  std::string OtherContexts(const std::string& id, const std::string& read) {
    const double bytes = options_.context_parallel * PassedBytes(model_, slice_);
    return Exchanged(id, read,
                     {.forward = InstructionOp::kAllGather,
                      .backward = InstructionOp::kReduceScatter,
                      .group = context_group_,
                      .bytes = bytes,
                      .stride = context_stride_,
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
    const std::string y = tape_.Add({name + "attention",
                                     InstructionOp::kAttention,
                                     read,
                                     {.block = {.attention = attention}},
                                     {RowBytes(all_heads)}});
    return Linears(name + "out", y, {Linear(all_heads, model_.model_dim)});
  }

  std::string Network(const std::string& name, const std::string& x, const BlockWork& block) {
    const std::string up = Linears(name + "up", AllRows(name + "up_in", x), {block.linears.front()});
    const std::string activated = tape_.Add({name + "activation",
                                             InstructionOp::kElementwise,
                                             {up},
                                             Moved(Only(block, Kernel::kActivation)),
                                             {RowBytes(block.linears.back().in_features)}});
    return Summed(name + "down_sum", Linears(name + "down", activated, {block.linears.back()}));
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

  // The experts' output, and the shared expert's, which is computed while tokens are on their way.
  Tensors Experts(const std::string& name, const std::string& normed) {
    const double slots = model_.top_k * options_.capacity_factor * GatedTokens();
    const double bytes = slots * model_.model_dim * options_.bytes_per_element;
    const auto kernel = [](Kernel kernel, double size) { return StepWork{.kernel = kernel, .kernel_size = size}; };
    // To all parts of the experts.
    const double sent_bytes = options_.expert_sharding_parallel * bytes;
    const Exchange exchange = {.forward = InstructionOp::kAllToAll,
                               .backward = InstructionOp::kAllToAll,
                               .group = expert_group_,
                               .bytes = sent_bytes};
    StepWork dispatches = kernel(Kernel::kPermute, bytes), combines = dispatches;
    if (options_.expert_sharding_parallel > 1) {
      combines.shards_bytes = dispatches.shards_bytes = sent_bytes;
      dispatches.shards_side = Side::kInputGradient;
    }
    const std::string x = GatedRows(name + "slice", normed);
    const std::string gate = tape_.Add({name + "gate",
                                        InstructionOp::kGate,
                                        {x},
                                        kernel(Kernel::kGate, GatedXBytes()),
                                        {PairBytes()},
                                        /*weights=*/true,
                                        1.0 * model_.model_dim * model_.experts,
                                        GateSum()});
    // Its second output says where each slot came from and with what weight, which combine reads.
    Step dispatch = {name + "dispatch", InstructionOp::kDispatch, {x, gate}, dispatches, {bytes, PairBytes()}};
    const std::string sources = Tape::OutputOf(dispatch, 1);
    const std::string sent = tape_.Add(dispatch);
    const std::string got = Exchanged(name + "all_to_all1", sent, exchange, sent_bytes);
    Tensors outputs;
    if (model_.shared_hidden_dim > 0) outputs = {Network(name + "shared_", normed, SharedExpertWork(model_, slice_))};
    const double local_experts = 1.0 * model_.experts / options_.expert_ranks();
    const StepWork experts = kernel(Kernel::kExpertGemm, 2 * slots * ExpertParameters(model_));
    const std::string made = tape_.Add({name + "experts",
                                        InstructionOp::kExpert,
                                        {got},
                                        experts,
                                        {sent_bytes},
                                        /*weights=*/true,
                                        local_experts * ExpertParameters(model_)});
    const std::string returned = Exchanged(name + "all_to_all2", made, exchange, sent_bytes);
    const std::string combined =
        tape_.Add({name + "combine", InstructionOp::kCombine, {returned, sources}, combines, {GatedXBytes()}});
    outputs.push_back(CombinedRows(name + "whole", combined));
    return outputs;
  }

  const ModelConfig& model_;
  const ModelGraphOptions& options_;
  Tape tape_;
  const RankSlice slice_;
  const GroupShape tensor_group_, expert_group_, context_group_;
  const int context_stride_;
  const GroupShape neighbours_;
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
  if (const double tokens = static_cast<double>(options.batch) * options.sequence_length; tokens > kMostGraphTokens) {
    return Bad("batch × sequence length", StrCat(tokens), StrCat("at most ", kMostGraphTokens, " tokens"));
  }
  RETURN_IF_ERROR(whole("expert parallel", options.expert_parallel, model.experts));
  RETURN_IF_ERROR(whole("expert sharding parallel", options.expert_sharding_parallel, kMostDegree));
  RETURN_IF_ERROR(whole("tensor parallel", options.tensor_parallel, kMostDegree));
  RETURN_IF_ERROR(whole("context parallel", options.context_parallel, kMostDegree));
  RETURN_IF_ERROR(whole("pipeline parallel", options.pipeline_parallel, kMostDegree));
  if (model.experts % options.expert_parallel != 0) {
    return Bad("expert parallel", StrCat(options.expert_parallel),
               StrCat("a divisor of the ", model.experts, " experts"));
  }
  RETURN_IF_ERROR(whole("ranks per node", options.ranks_per_node, options.expert_parallel));
  const double degrees = 1.0 * options.expert_parallel * options.expert_sharding_parallel * options.tensor_parallel *
                         options.context_parallel * options.pipeline_parallel;
  if (degrees > kMostRanks) {
    return Bad("degrees", StrCat(degrees, " ranks"), StrCat("at most ", kMostRanks, ", multiplied with each other"));
  }
  if (options.zero_stage < 0 || options.zero_stage > kMaxZeroStage) {
    return Bad("zero", StrCat(options.zero_stage), StrCat("a stage of 0 to ", kMaxZeroStage));
  }
  const int ranks = options.expert_parallel * options.pipeline_parallel;
  if (options.gpus != 0 && (options.gpus < ranks || options.gpus % ranks != 0)) {
    return Bad("gpus", StrCat(options.gpus),
               StrCat("a multiple of the ", ranks,
                      options.pipeline_parallel > 1 ? " of expert and pipeline parallel" : " of expert parallel"));
  }
  if (const int stage = options.stage.value_or(0); stage < 0 || stage >= options.pipeline_parallel) {
    return Bad(
        "stage", StrCat(stage),
        options.pipeline_parallel == 1 ? "0: there is one stage" : StrCat("0 to ", options.pipeline_parallel - 1));
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

// Places the ranks. Their degrees must be those of a layout on the profile's nodes if they share layers or sequences.
StatusOr<Placement> PlacementOf(const ModelConfig& model, const ModelGraphOptions& options, const Profile& profile) {
  const bool across = options.horizontal_contexts.value_or(false);
  const bool shares_experts = options.expert_sharding_parallel > 1;
  const bool in_stages = options.pipeline_parallel > 1;
  if (options.tensor_parallel == 1 && options.context_parallel == 1 && !shares_experts && !across && !in_stages) {
    return Placement{{.layout = LayoutOf(options), .micro_batch = options.batch}, options.PerNode()};
  }
  if (model.encoder_layers > 0) {
    return Bad("model", "an encoder", "one without, where layers or sequences are shared by ranks or cut in stages");
  }
  const LayoutRequest request = RequestOf(model, options);
  RETURN_IF_ERROR(CheckLayoutRequest(request, profile.cluster));
  const Cluster cluster = ClusterOf(request, profile.cluster);
  Layout layout = LayoutOf(options);
  layout.data_parallel = 0;
  ASSIGN_OR_RETURN(const LayoutPoint point,
                   PointOf(request, cluster, layout, options.batch, options.horizontal_contexts));
  return Placement{point, cluster.gpus_per_node};
}

ModelGraphOptions OptionsOf(const LayoutRequest& request, const LayoutPoint& point, const Cluster& cluster) {
  const Layout& layout = point.layout;
  return {.batch = point.micro_batch,
          .sequence_length = request.sequence_length,
          .expert_parallel = layout.expert_parallel,
          .ranks_per_node = std::min(layout.expert_parallel, cluster.gpus_per_node),
          .expert_sharding_parallel = layout.expert_sharding_parallel,
          .tensor_parallel = layout.tensor_parallel,
          .context_parallel = layout.context_parallel,
          .pipeline_parallel = layout.pipeline_parallel,
          .horizontal_contexts = point.horizontal_contexts,
          .sequence_parallel = request.sequence_parallel,
          .gpus = request.gpus,
          .gpus_per_node = cluster.gpus_per_node,
          .capacity_factor = request.capacity_factor,
          .bytes_per_element = request.bytes_per_element,
          .zero_stage = request.zero_stage,
          .gradient_bytes = request.gradient_bytes};
}

void Shorten(double factor, Instruction& one) {
  *one.time_s *= factor;
  for (double& part_s : one.part_times_s) part_s *= factor;
}

// Leaves what exchanges of keys and values take beyond the scores beside them.
void HideContexts(const LayerRun& run, TrainingGraph& graph) {
  std::unordered_map<std::string_view, Instruction*> by_id;
  for (Instruction& one : graph.instructions) by_id[one.id] = &one;
  const auto hide = [&](std::initializer_list<std::string> exchanges, const std::string& scores) {
    double exchanged_s = 0;
    for (const std::string& id : exchanges) exchanged_s += by_id.contains(id) ? *by_id.at(id)->time_s : 0;
    if (exchanged_s <= 0) return;
    const double left = std::max(0.0, exchanged_s - *by_id.at(scores)->time_s) / exchanged_s;
    for (const std::string& id : exchanges) Shorten(left, *by_id.at(id));
  };
  for (int i = run.first; i < run.first + run.count; ++i) {
    const std::string layer = StrCat("layer", i, ".");
    hide({layer + "contexts"}, layer + "attention");
    hide({layer + "contexts.again", layer + "contexts.dx"}, layer + "attention.dx");
  }
}

// The run on whose way there and back a micro-batch is longest, the first of equal ones.
LayerRun LongestRun(const ModelConfig& model, const ModelGraphOptions& options, const Placement& placement,
                    const std::vector<LayerRun>& runs, Costs& costs) {
  const LayerRun* longest = &runs.front();
  double longest_s = -1;
  for (const LayerRun& run : runs) {
    double run_s = 0;
    for (const Instruction& one : Builder(model, options, placement, Counts::kMicroBatch, costs).Build(run)) {
      run_s += *one.time_s;
    }
    if (run_s > longest_s) longest = &run, longest_s = run_s;
  }
  return *longest;
}

double ForwardS(const TrainingGraph& graph) {
  double forward_s = 0;
  for (const Instruction& one : graph.instructions) forward_s += one.phase == Pass::kForward ? *one.time_s : 0;
  return forward_s;
}

// At least 1: a stage may have dense layers alone.
int MoeLayersIn(const TrainingGraph& graph) {
  const auto combines = [](const Instruction& one) {
    return one.op == InstructionOp::kCombine && one.phase == Pass::kForward;
  };
  return std::max(1, static_cast<int>(std::ranges::count_if(graph.instructions, combines)));
}

}  // namespace

StatusOr<TrainingGraph> TrainingGraphOf(const ModelConfig& model, const ModelGraphOptions& options,
                                        const Profile& profile, PriceNotes& notes) {
  RETURN_IF_ERROR(CheckOptions(model, options));
  ASSIGN_OR_RETURN(const Placement placement, PlacementOf(model, options, profile));
  Costs costs(model, options, profile);
  const std::vector<LayerRun> runs = RunsOf(RequestOf(model, options), options.pipeline_parallel);
  const LayerRun run = runs.size() == 1 || options.stage ? runs[options.stage.value_or(0)]
                                                         : LongestRun(model, options, placement, runs, costs);
  TrainingGraph graph = {.instructions = Builder(model, options, placement, Counts::kStep, costs).Build(run),
                         .max_parts = options.max_parts};
  graph.workload = costs.workload();
  RETURN_IF_ERROR(costs.Missing());
  notes.Merge(costs.notes());
  const RangeLimits limits = options.paper_limits ? LimitsOfPaper(ForwardS(graph), MoeLayersIn(graph)) : options.limits;
  graph.group_s = limits.group_s;
  graph.max_range_s = limits.max_range_s;
  RETURN_IF_ERROR(ValidateTrainingGraph(graph));
  return graph;
}

const char* LastOfForward(const LayerRun& run) { return run.predicts ? kLoss : kPassedOn; }

StatusOr<TrainingGraph> GraphOfRun(const LayoutRequest& request, const LayoutPoint& point, const LayerRun& run,
                                   const Profile& profile, PriceNotes& notes) {
  const ModelGraphOptions options = OptionsOf(request, point, profile.cluster);
  RETURN_IF_ERROR(CheckOptions(request.model, options));
  const Placement placement = {point, profile.cluster.gpus_per_node};
  Costs costs(request.model, options, profile);
  Builder builder(request.model, options, placement, Counts::kMicroBatch, costs);
  TrainingGraph graph = {.instructions = builder.Build(run), .max_parts = options.max_parts};
  HideContexts(run, graph);
  graph.workload = costs.workload();
  RETURN_IF_ERROR(costs.Missing());
  notes.Merge(costs.notes());
  RETURN_IF_ERROR(ValidateTrainingGraph(graph));
  return graph;
}

}  // namespace moeplan::planner
