#include "cli/reproduce/lancet/compared_step.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/check.h"
#include "models/text.h"
#include "planner/lancet/judge.h"
#include "planner/lancet/timed_graph.h"
#include "planner/rules/lancet.h"
#include "planner/sweep/cost_scaling.h"

namespace moeplan::cli {
namespace {

constexpr int kTutelDegrees[] = {1, 2, 4, 8};
constexpr double kLaunches = 2e7;  // That the paper's dynamic program may play, as many as in `plan --graph`.

StepEnd EndOf(const planner::JudgedChoice& judged) {
  return {judged.played.total_s, judged.played.exposed_communication_s};
}

// The optimizer then reads the gradients themselves.
void TakeOutSums(TrainingGraph& graph) {
  std::map<std::string, std::vector<std::string>> summed;  // What each sum reads, by what it writes.
  for (const Instruction& one : graph.instructions) {
    if (one.op == InstructionOp::kAllReduce) summed[one.outputs.front()] = one.inputs;
  }
  std::erase_if(graph.instructions, [](const Instruction& one) { return one.op == InstructionOp::kAllReduce; });
  for (Instruction& one : graph.instructions) {
    std::vector<std::string> inputs;
    for (const std::string& tensor : one.inputs) {
      const auto sum = summed.find(tensor);
      if (sum == summed.end()) {
        inputs.push_back(tensor);
      } else {
        inputs.insert(inputs.end(), sum->second.begin(), sum->second.end());
      }
    }
    one.inputs = std::move(inputs);
  }
}

double ScaleOf(InstructionOp op, const StepChanges& changes) {
  switch (op) {
    case InstructionOp::kAllReduce: return changes.sum_scale;
    case InstructionOp::kAllToAll: return changes.exchange_scale;
    case InstructionOp::kMatmul:
    case InstructionOp::kExpert:
    case InstructionOp::kAttention: return changes.product_scale;
    default: return 1;
  }
}

void Scale(const StepChanges& changes, Instruction& one) {
  const double scale = ScaleOf(one.op, changes);
  if (one.time_s) *one.time_s *= scale;
  for (double& part_s : one.part_times_s) part_s *= scale;
}

// ---- The stand-in for Tutel.

// From the first to the second all-to-all of each layer of experts, there and back.
std::vector<planner::CutRange> TutelRanges(const planner::TimedGraph& graph, int parts) {
  std::vector<planner::CutRange> ranges;
  bool inside = false;
  for (int i = 0; i < graph.size(); ++i) {
    if (!graph.instructions[i].exchanges()) continue;
    if (inside) {
      ranges.back().last = i;
    } else {
      ranges.push_back({.first = i, .last = i, .parts = parts});
    }
    inside = !inside;
  }
  return ranges;
}

// With times of parts for the backward pass, too: all-to-alls send what they sent forward, and parts of the experts'
// gradients take the share of the whole that parts of the experts take.
planner::TimedGraph WithBackwardParts(planner::TimedGraph graph) {
  std::map<InstructionOp, const planner::TimedInstruction*> forward;
  for (planner::TimedInstruction& one : graph.instructions) {
    if (!one.exchanges() && one.op != InstructionOp::kExpert) continue;
    if (one.phase == Pass::kForward) {
      forward.emplace(one.op, &one);
      continue;
    }
    const planner::TimedInstruction& like = *forward.at(one.op);
    const double whole_s = one.whole_s();
    one.even_part_s.clear();
    one.part_s = like.even_part_s.empty() ? like.part_s : like.even_part_s;
    for (double& part_s : one.part_s) part_s *= whole_s / like.whole_s();
  }
  return graph;
}

// A choice as an answer that can be run.
GraphPlanAnswer AnswerOf(const TrainingGraph& graph, const planner::JudgedChoice& judged) {
  GraphPlanAnswer answer = {.graph = graph};
  const auto id = [&](int i) { return graph.instructions[i].id; };
  answer.lancet.time_s = judged.played.total_s;
  for (const StepRange& range : judged.ranges) {
    answer.lancet.partitions.push_back(
        {.first = id(range.first), .last = id(range.last), .parts = range.parts, .axis = range.axis});
  }
  for (const StepLaunch& launch : judged.launches) {
    answer.lancet.order.push_back(launch.parts == 1 ? id(launch.instruction)
                                                    : StrCat(id(launch.instruction), "#", launch.part + 1));
  }
  return answer;
}

void CompareTutel(const TrainingGraph& graph, const planner::TimedGraph& timed, const Profile& profile,
                  ComparedStep& step) {
  const planner::TimedGraph with_parts = WithBackwardParts(timed);
  planner::Judge judge(graph, with_parts, &profile);
  std::optional<planner::JudgedChoice> best;
  for (const int degree : kTutelDegrees) {
    if (degree > timed.max_parts) continue;
    planner::StepChoice choice;
    if (degree > 1) choice.ranges = TutelRanges(with_parts, degree);
    std::optional<planner::JudgedChoice> judged = judge.Play(choice);
    if (judged && (!best || judged->played.total_s < best->played.total_s)) best = std::move(judged);
  }
  MOEPLAN_CHECK(best.has_value());
  step.tutel = EndOf(*best);
  step.in_parts = AnswerOf(graph, *best);
}

}  // namespace

double Gain(const StepEnd& baseline, const StepEnd& planned) { return baseline.time_s / planned.time_s - 1; }

double Cut(const StepEnd& baseline, const StepEnd& planned) {
  return baseline.exposed_s > 0 ? 1 - planned.exposed_s / baseline.exposed_s : 0;
}

TrainingGraph Changed(TrainingGraph graph, const StepChanges& changes) {
  if (!changes.gradient_sums) TakeOutSums(graph);
  if (changes.most_parts > 0) graph.max_parts = std::min(graph.max_parts, changes.most_parts);
  double forward_s = 0;
  int exchanges = 0;
  for (Instruction& one : graph.instructions) {
    Scale(changes, one);
    if (one.phase != Pass::kForward) continue;
    forward_s += one.time_s.value_or(0);
    exchanges += one.op == InstructionOp::kAllToAll ? 1 : 0;
  }
  if (changes.paper_limits) {
    const planner::RangeLimits limits = planner::LimitsOfPaper(forward_s, std::max(1, exchanges / 2));
    graph.group_s = limits.group_s;
    graph.max_range_s = limits.max_range_s;
  }
  return graph;
}

Profile Changed(Profile profile, const StepChanges& changes) {
  const auto is_contended = [](const auto& entry) { return entry.key.contention != Contention::kNone; };
  for (KernelModel& entry : profile.kernels) {
    if (is_contended(entry)) planner::ScaleTime(entry.model, changes.compute_slowdown);
  }
  if (changes.contention) return profile;
  std::erase_if(profile.collectives, is_contended);
  std::erase_if(profile.kernels, is_contended);
  return profile;
}

StatusOr<ComparedStep> CompareStep(const TrainingGraph& unchanged, const Profile& measured,
                                   const StepChanges& changes) {
  const TrainingGraph graph = Changed(unchanged, changes);
  const Profile profile = Changed(measured, changes);
  ComparedStep step;
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(step.answer, planner::PlanGraph(graph, &profile, {.passes = changes.passes}));
  step.planning_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const LancetAnswer& lancet = step.answer.lancet;
  step.raf = {lancet.unscheduled_time_s, lancet.unscheduled_exposed_s};
  step.lancet = {lancet.time_s, lancet.exposed_communication_s};
  for (const LancetAnswer::Partition& range : lancet.partitions) {
    step.most_parts = std::max(step.most_parts, range.parts);
  }
  PriceNotes notes;
  ASSIGN_OR_RETURN(const planner::TimedGraph timed, planner::TimeGraph(graph, &profile, notes));
  CompareTutel(graph, timed, profile, step);
  const planner::PaperPlan paper = planner::PlanOfPaper(timed, changes.passes, kLaunches);
  planner::Judge judge(graph, timed, &profile);
  step.paper = EndOf(*judge.Play({paper.ranges, paper.places}));
  return step;
}

double SumS(const TrainingGraph& graph, InstructionOp op) {
  double sum_s = 0;
  for (const Instruction& one : graph.instructions) sum_s += one.op == op ? one.time_s.value_or(0) : 0;
  return sum_s;
}

}  // namespace moeplan::cli
