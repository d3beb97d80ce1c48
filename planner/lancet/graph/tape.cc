#include "planner/lancet/graph/tape.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "models/text.h"
#include "planner/lancet/graph/ring_pieces.h"

namespace moeplan::planner {
namespace {

constexpr double kBucketBytes = 25 << 20;  // Of gradients that are summed together: PyTorch's DDP, as it is set.
constexpr const char* kAgain = ".again";   // Behind the name of what is gathered for the second time.
constexpr const char* kRecomputed = ".recomputed";

void Append(const Tensors& more, Tensors& tensors) { tensors.insert(tensors.end(), more.begin(), more.end()); }

bool IsPassedOn(const Step& step) {
  return step.work.exchange && step.work.exchange->passes_on(step.work.exchange->forward);
}

}  // namespace

Tape::Tape(const TapeOptions& options, StepCosts& costs)
    : options_(options),
      costs_(costs),
      dense_{.replicas = options.dense},
      experts_{.prefix = "expert_", .replicas = options.experts} {}

void Tape::StartPart(const std::string& name) {
  EndPart();
  parts_.push_back({.name = name, .first_step = steps_.size(), .first_instruction = instructions_.size()});
}

std::string Tape::Add(Step step) {
  const std::string output = OutputOf(step, 0);
  if (IsPassedOn(step)) {
    passed_on_[output] = Made(step.activations.front());
    made_[output] = step.output_bytes.front();
  } else {
    AddForward(step);
  }
  if (step.work.exchange && step.work.exchange->again) gathered_[output].step = steps_.size();
  if (step.work.exchange && step.work.exchange->output_gradient_bytes) {
    gradient_bytes_[output] = *step.work.exchange->output_gradient_bytes;
  }
  if (step.again) {
    groups_[step.again->group].push_back(steps_.size());
    if (step.again->is_output) discarded_[output] = step.again->group;
  }
  steps_.push_back(std::move(step));
  return output;
}

std::string Tape::OutputOf(const Step& step, size_t i) {
  return i == 0 ? step.id + ".y" : StrCat(step.id, ".y", i + 1);
}

std::vector<Instruction> Tape::Finish() {
  EndPart();
  FinishBack();
  CutIntoPieces(pieces_, instructions_);
  return std::move(instructions_);
}

void Tape::FinishBack() {
  size_t part = parts_.size();
  for (size_t i = steps_.size(); i-- > 0;) {
    if (part == parts_.size() || i < parts_[part].first_step) StartPartBack(--part);
    AddBack(steps_[i]);
    if (options_.counts == Counts::kMicroBatch) continue;
    for (Gradients* const of : {&dense_, &experts_}) {
      const bool full = CutsWeights() ? i == parts_[part].first_step : of->bucket_bytes >= kBucketBytes;
      if (full && of->bucket_bytes > 0) AddGradientSum(*of);
    }
  }
  if (options_.counts == Counts::kMicroBatch) return;
  for (Gradients* const of : {&dense_, &experts_}) {
    if (of->bucket_bytes > 0) AddGradientSum(*of);
  }
  AddOptimizer();
}

void Tape::AddForward(const Step& step) {
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

void Tape::SetTimes(const StepWork& work, Side side, Instruction& one) {
  one.time_s = costs_.TimeS(work, 1, side);
  one.work = costs_.KernelsOf(work, side);
  if (!CollectiveOf(one.op)) return;
  if (one.op == InstructionOp::kSend && options_.replicas_have_own_stream) one.stream = StreamKind::kInterNode;
  if (work.exchange->stream) one.stream = work.exchange->stream;
  // One micro-batch has what `step` leaves of the exchanges instead (model_graph.h).
  if (work.exchange->pieces > 1 && options_.counts == Counts::kStep) pieces_[one.id] = work.exchange->pieces;
  one.bytes = work.exchange->BytesOn(side);
  constexpr double kCountBytes = 4;  // Each rank says of each expert how many rows it sends.
  if (one.op == InstructionOp::kAllToAll) one.counts_bytes = kCountBytes * costs_.workload().layer.experts;
  one.group_size = work.exchange->group.size;
  one.ranks_per_node = work.exchange->group.ranks_per_node;
}

double Tape::GradientBytes(const Step& step, const std::string& activation) const {
  if (step.work.exchange && step.work.exchange->input_gradient_bytes) return *step.work.exchange->input_gradient_bytes;
  const auto other = gradient_bytes_.find(activation);
  return other == gradient_bytes_.end() ? made_.at(activation) : other->second;
}

std::string Tape::WeightsBack(const Step& step) {
  const bool gathered = CutsWeights() && GradientsOf(step).replicas.group.size > 1 && step.weights_of.empty();
  return gathered ? WeightsOf(step) + kAgain : WeightsOf(step);
}

std::string Tape::Made(const std::string& tensor) const {
  const auto passed_on = passed_on_.find(tensor);
  return passed_on == passed_on_.end() ? tensor : passed_on->second;
}
Tensors Tape::Made(Tensors tensors) const {
  for (std::string& tensor : tensors) tensor = Made(tensor);
  return tensors;
}

Tensors Tape::GradientsInto(const Step& step) {
  Tensors gradients;
  for (size_t i = 0; i < step.output_bytes.size(); ++i) Append(gradients_of_[OutputOf(step, i)], gradients);
  return gradients;
}

void Tape::AddBack(const Step& step) {
  const Tensors gradients = GradientsInto(step);
  if (step.again) Recompute(step.again->group, gradients);
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
  if (!exchange && step.again && !step.again->is_output) back.inputs.push_back(recomputed_.at(OutputOf(step, 0)));
  if (step.weights && WeightsBack(step) != WeightsOf(step)) back.inputs.push_back(WeightsBack(step));
  for (const std::string& tensor : step.activations) {
    if (!made_.contains(tensor)) continue;
    back.outputs.push_back(StrCat("d(", tensor, ").", step.id));
    back.output_bytes.push_back(GradientBytes(step, tensor));
    gradients_of_[tensor].push_back(back.outputs.back());
  }
  SetTimes(step.work, Side::kInputGradient, back);
  if (!back.outputs.empty() || back.op == InstructionOp::kSend) instructions_.push_back(std::move(back));
  if (!step.weights) return;
  Append(again, kept);
  AddWeightGradient(step, gradients, kept);
}

void Tape::ReadBack(const Step& step, const Tensors& gradients, Tensors& kept, Tensors& again) {
  for (const std::string& tensor : step.activations) {
    if (gathered_.contains(tensor)) {
      again.push_back(Gathered(tensor, gradients));
    } else {
      kept.push_back(Kept(tensor, gradients));
    }
  }
}

std::string Tape::Kept(const std::string& tensor, const Tensors& gradients) {
  const std::string made = Made(tensor);
  if (const auto discarded = discarded_.find(made); discarded != discarded_.end()) {
    Recompute(discarded->second, gradients);
  }
  const auto recomputed = recomputed_.find(made);
  return recomputed == recomputed_.end() ? made : recomputed->second;
}

std::string Tape::Gathered(const std::string& tensor, const Tensors& gradients) {
  GatheredRows& rows = gathered_.at(tensor);
  if (rows.back.empty()) rows.back = AddAgain(steps_[rows.step], gradients);
  return rows.back;
}

void Tape::Recompute(int group, const Tensors& gradients) {
  const std::vector<size_t> steps = std::exchange(groups_[group], {});
  if (steps.empty()) return;
  const auto behind = std::ranges::upper_bound(parts_, steps.front(), {}, &Part::first_step);
  // A group of several parts reads the weights of all of them before the first one is on its way back.
  if (behind != parts_.begin()) GatherBackTo(static_cast<size_t>(behind - parts_.begin()) - 1, gradients);
  for (const size_t step : steps) {
    if (!IsPassedOn(steps_[step])) RecomputeStep(steps_[step], gradients);
  }
}

void Tape::RecomputeStep(const Step& step, const Tensors& gradients) {
  Instruction one = {.id = step.id + kRecomputed, .op = step.again->op, .phase = Pass::kBackward};
  bool follows = false;  // Whether it reads what was computed again, so that it is as late as that.
  for (const std::string& tensor : step.activations) {
    const auto recomputed = recomputed_.find(Made(tensor));
    const bool reads_kept = recomputed == recomputed_.end();
    follows = follows || !reads_kept;
    if (!reads_kept) {
      one.inputs.push_back(recomputed->second);
    } else if (gathered_.contains(tensor)) {
      one.inputs.push_back(Gathered(tensor, gradients));
    } else {
      one.inputs.push_back(Kept(tensor, gradients));
    }
  }
  if (!follows) Append(gradients, one.inputs);
  if (step.weights && one.op == step.op) one.inputs.push_back(WeightsBack(step));
  for (size_t i = 0; i < step.output_bytes.size(); ++i) {
    one.outputs.push_back(i == 0 ? one.id + ".y" : StrCat(one.id, ".y", i + 1));
    recomputed_[OutputOf(step, i)] = one.outputs.back();
  }
  one.output_bytes = step.output_bytes;
  if (one.op == InstructionOp::kGate) one.gate = options_.gate;
  SetTimes(step.again->work, Side::kForward, one);
  instructions_.push_back(std::move(one));
}

std::string Tape::AddAgain(const Step& step, const Tensors& gradients) {
  Instruction again = {.id = step.id + kAgain, .op = step.op, .phase = Pass::kBackward};
  for (const std::string& tensor : step.activations) again.inputs.push_back(Kept(tensor, gradients));
  Append(gradients, again.inputs);
  again.outputs = {again.id + ".y"};
  again.output_bytes = step.output_bytes;
  SetTimes(step.work, Side::kForward, again);
  instructions_.push_back(std::move(again));
  return instructions_.back().outputs.front();
}

void Tape::AddWeightGradient(const Step& step, const Tensors& gradients, const Tensors& read) {
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

void Tape::AddWeightSum(const Step& step, Gradients& of) {
  Instruction sum = {.id = step.id + ".sum", .op = *step.weight_sum->forward, .phase = Pass::kBackward};
  sum.inputs = {of.bucket.back()};
  sum.outputs = {sum.id + ".y"};
  SetTimes({.exchange = step.weight_sum}, Side::kForward, sum);
  of.bucket.back() = sum.outputs.front();
  instructions_.push_back(std::move(sum));
}

Instruction Tape::OfReplicas(const Gradients& of, const std::string& id, InstructionOp op, double bytes,
                             Tensors inputs) {
  Instruction one = {.id = id, .op = op, .phase = Pass::kBackward, .inputs = std::move(inputs)};
  const GroupShape& group = of.replicas.group;
  one.time_s = options_.counts == Counts::kStep ? costs_.CollectiveS(op, group, bytes, of.replicas.stride) : 0;
  one.bytes = bytes;
  one.group_size = group.size;
  one.ranks_per_node = group.ranks_per_node;
  if (options_.replicas_have_own_stream) one.stream = StreamKind::kCopy;
  one.outputs = {one.id + ".y"};
  return one;
}

void Tape::AddGradientSum(Gradients& of) {
  const InstructionOp op = CutsOptimizer() ? InstructionOp::kReduceScatter : InstructionOp::kAllReduce;
  if (of.replicas.group.size == 1) {
    Append(of.bucket, finished_);
  } else {
    const std::string id = StrCat(of.prefix, "gradients.", ++of.sums);
    instructions_.push_back(OfReplicas(of, id, op, of.bucket_bytes, of.bucket));
    finished_.push_back(instructions_.back().outputs.front());
  }
  of.bucket_bytes = 0;
  of.bucket.clear();
}

void Tape::EndPart() {
  if (parts_.empty() || !CutsWeights()) return;
  Part& part = parts_.back();
  std::vector<Instruction> gathers;
  for (const Gradients* const of : {&dense_, &experts_}) {
    Gather gather = {.id = StrCat(part.name, of->prefix, "weights"), .of = of};
    for (size_t i = part.first_step; i < steps_.size(); ++i) {
      if (!steps_[i].weights || !steps_[i].weights_of.empty() || &GradientsOf(steps_[i]) != of) continue;
      gather.parameters += steps_[i].parameters;
      gather.weights.push_back(WeightsOf(steps_[i]));
      gather.weight_bytes.push_back(steps_[i].parameters * options_.bytes_per_element);
    }
    if (of->replicas.group.size == 1 || gather.parameters <= 0) continue;
    gathers.push_back(GatherOf(gather));
    gathers.back().phase = Pass::kForward;
    gathers.back().outputs = gather.weights;
    gathers.back().output_bytes = gather.weight_bytes;
    const auto share_s = [&](double share) {
      if (options_.counts == Counts::kMicroBatch) return 0.0;
      return costs_.CollectiveS(InstructionOp::kAllGather, of->replicas.group, share * *gathers.back().bytes,
                                of->replicas.stride);
    };
    SetPartTimes(share_s, gathers.back());
    part.gathers.push_back(std::move(gather));
  }
  instructions_.insert(instructions_.begin() + static_cast<std::ptrdiff_t>(part.first_instruction), gathers.begin(),
                       gathers.end());
}

Instruction Tape::GatherOf(const Gather& gather) {
  return OfReplicas(*gather.of, gather.id, InstructionOp::kAllGather, gather.parameters * options_.bytes_per_element,
                    {gather.id + ".shards"});
}

void Tape::StartPartBack(size_t part) {
  const Step& last = part + 1 < parts_.size() ? steps_[parts_[part + 1].first_step - 1] : steps_.back();
  Tensors begun = GradientsInto(last);
  if (begun.empty()) begun = {OutputOf(last, 0)};
  GatherBackTo(part > 0 ? part - 1 : 0, begun);
}

void Tape::GatherBackTo(size_t part, const Tensors& begun) {
  if (!first_gathered_back_) first_gathered_back_ = parts_.size();
  while (*first_gathered_back_ > part) GatherAgain(parts_[--*first_gathered_back_], begun);
}

void Tape::GatherAgain(const Part& part, const Tensors& begun) {
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

void Tape::AddOptimizer() {
  Instruction step = {.id = "optimizer", .op = InstructionOp::kOther, .phase = Pass::kBackward, .inputs = finished_};
  const auto shards = [&](const Gradients& of) { return CutsOptimizer() ? of.replicas.group.size : 1; };
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

}  // namespace moeplan::planner
