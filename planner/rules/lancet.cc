#include "planner/rules/lancet.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "models/cost/formula.h"
#include "models/text.h"
#include "planner/lancet/judge.h"
#include "planner/lancet/parts_as_run.h"
#include "planner/lancet/schedule.h"
#include "planner/wording.h"

namespace moeplan::planner {
namespace {

std::string RoughPercent(double share) { return StrCat(ThreeDigits(100 * share), " %"); }

std::string Counted(size_t count, const std::string& one, const std::string& many) {
  return StrCat(count, " ", count == 1 ? one : many);
}

using Producers = std::unordered_map<std::string_view, int>;  // Of tensors.

// Whether a tensor stays whole, as weights do: nothing in the graph makes it, or an all-gather of such tensors alone.
bool StaysWhole(const TrainingGraph& graph, const Producers& producers, const std::string& tensor) {
  const auto producer = producers.find(tensor);
  if (producer == producers.end()) return true;
  const Instruction& one = graph.instructions[producer->second];
  return one.op == InstructionOp::kAllGather &&
         std::ranges::none_of(one.inputs, [&](const std::string& input) { return producers.contains(input); });
}

// Tensors from outside that are cut where they enter the range, and of its own those put together behind it.
void NameBoundaries(const TrainingGraph& graph, const StepTaskBuilder& builder, const Producers& producers,
                    const StepRange& range, LancetAnswer::Partition& partition) {
  std::set<std::string> split;
  for (int i = range.first; i <= range.last; ++i) {
    const Instruction& one = graph.instructions[i];
    for (const std::string& tensor : one.inputs) {
      if (!StaysWhole(graph, producers, tensor) && producers.at(tensor) < range.first) split.insert(tensor);
    }
    if (one.output_bytes.empty()) continue;
    for (const int output : builder.ReadBehind(i, range.last)) {
      if (one.output_bytes[output] > 0) partition.joined.push_back(one.outputs[output]);
    }
  }
  partition.split.assign(split.begin(), split.end());
}

LancetAnswer AnswerOf(const TrainingGraph& graph, const Judge& judge, const JudgedChoice& judged,
                      const JudgedChoice& given) {
  const auto id = [&](int i) { return graph.instructions[i].id; };
  LancetAnswer answer = {.unscheduled_time_s = given.played.total_s,
                         .time_s = judged.played.total_s,
                         .communication_time_s = judged.played.communication_time_s,
                         .exposed_communication_s = judged.played.exposed_communication_s,
                         .unscheduled_exposed_s = given.played.exposed_communication_s,
                         .timeline = TimelineOf(judged.tasks.graph, judged.played),
                         .peak_bytes = judge.PeakBytes(judged),
                         .unscheduled_peak_bytes = judge.PeakBytes(given)};
  for (const auto& [gradient, exchange] : judged.choice.places) {
    answer.weight_gradients.push_back({id(gradient), id(exchange)});
  }
  const StepTaskBuilder builder(graph);
  Producers producers;
  for (size_t i = 0; i < graph.instructions.size(); ++i) {
    for (const std::string& tensor : graph.instructions[i].outputs) producers[tensor] = static_cast<int>(i);
  }
  for (size_t i = 0; i < judged.ranges.size(); ++i) {
    const StepRange& range = judged.ranges[i];
    LancetAnswer::Partition& partition = answer.partitions.emplace_back();
    partition = {.first = id(range.first),
                 .last = id(range.last),
                 .parts = range.parts,
                 .time_s = judged.choice.ranges[i].time_s,
                 .axis = range.axis};
    NameBoundaries(graph, builder, producers, range, partition);
  }
  for (const StepLaunch& launch : judged.launches) {
    answer.order.push_back(launch.parts == 1 ? id(launch.instruction)
                                             : StrCat(id(launch.instruction), "#", launch.part + 1));
  }
  return answer;
}

std::string GradientSentence(const TrainingGraph& graph, const LancetSchedule& schedule, const LancetPasses& passes) {
  if (!passes.weight_gradients) return "Weight gradients keep their places, as was asked.";
  const OverlapProblem& problem = schedule.problem;
  if (problem.exchanges.empty()) return "There is no backward all-to-all to cover.";
  if (problem.gradients.empty()) return "No weight gradient is independent of a backward all-to-all.";
  double exchanges_s = 0;
  for (const double time_s : problem.exchange_s) exchanges_s += time_s;
  const std::string exchanges = StrCat(Counted(problem.exchanges.size(), "backward all-to-all", "backward all-to-alls"),
                                       " of ", Milliseconds(exchanges_s));
  if (schedule.places.empty()) {
    return StrCat("No weight gradient waits for ", exchanges, ": assigning them can cover ",
                  Milliseconds(schedule.overlap.overlap_s),
                  ", but no assignment that was tried lets the step end earlier",
                  graph.most_bytes ? " in the memory that may be had." : ".");
  }
  const double gap_s = schedule.overlap.bound_s - schedule.overlap.overlap_s;
  const std::string proof = schedule.overlap.stop_reason == StopReason::kProvedBest
                                ? "which no assignment exceeds"
                                : StrCat("at most ", RoughPercent(gap_s / schedule.overlap.bound_s),
                                         " below the bound of ", Milliseconds(schedule.overlap.bound_s));
  return StrCat(Counted(schedule.places.size(), "weight gradient runs", "weight gradients run"), " beside ", exchanges,
                "; assigning them can cover ", Milliseconds(schedule.overlap.overlap_s), ", ", proof,
                " (best-fit greedy: ", Milliseconds(schedule.greedy_s), ").");
}

std::string RangeSentence(const TrainingGraph& graph, const LancetSchedule& schedule, const LancetPasses& passes) {
  if (!passes.partition) return "No range of the forward pass is cut, as was asked.";
  if (schedule.ranges.empty()) return "No range of the forward pass ends earlier when it is cut.";
  double cut_s = 0;
  for (const CutRange& range : schedule.ranges) cut_s += range.time_s;
  const CutRange& first = schedule.ranges.front();
  const bool both_ways =
      std::ranges::any_of(graph.instructions, [](const Instruction& one) { return !one.forward.empty(); });
  return StrCat(Counted(schedule.ranges.size(), "range", "ranges"), " of the forward pass ",
                schedule.ranges.size() == 1 ? "is" : "are", " cut, the first from ", graph.instructions[first.first].id,
                " to ", graph.instructions[first.last].id, " in ", first.parts, " parts; cut they take ",
                Milliseconds(cut_s), both_ways ? ", and what goes back over them is cut, too." : ".");
}

// Says how much memory the plan takes; nothing where the graph has no sizes.
std::string MemorySentence(const TrainingGraph& graph, const LancetAnswer& answer) {
  if (!answer.peak_bytes) return {};
  const std::string limit = graph.most_bytes ? StrCat(", where ", SizeText(*graph.most_bytes, "bytes"), " may be") : "";
  return StrCat(" What its instructions make takes ", SizeText(*answer.peak_bytes, "bytes"),
                " at most (given order: ", SizeText(*answer.unscheduled_peak_bytes, "bytes"), limit, ").");
}

// Says what parts take beside each other; nothing where that was not measured.
std::string PartsSentence(const std::map<int, double>& factors) {
  if (factors.empty()) return {};
  std::string times;
  for (const auto& [parts, factor] : factors) {
    times += StrCat(times.empty() ? "" : ", ", ThreeDigits(factor), " (", parts, " parts)");
  }
  const bool some_below_1 = std::ranges::any_of(factors, [](const auto& of) { return of.second < 1; });
  return StrCat(" Parts that run beside each other take ", times,
                " times what they take alone, as the measured steps say",
                some_below_1 ? "; below 1, those of layers that exchange rows." : ".");
}

std::string Explain(const TrainingGraph& graph, const LancetSchedule& schedule, const LancetAnswer& answer,
                    const LancetPasses& passes, const std::map<int, double>& factors) {
  const double gain = schedule.unscheduled_s > 0 ? 1 - schedule.time_s / schedule.unscheduled_s : 0;
  return StrCat("The step ends after ", Milliseconds(schedule.time_s), ", ", RoughPercent(gain), " earlier than the ",
                Milliseconds(schedule.unscheduled_s), " of the given order. ",
                GradientSentence(graph, schedule, passes), " ", RangeSentence(graph, schedule, passes),
                passes.partition ? PartsSentence(factors) : "", MemorySentence(graph, answer));
}

// What the search has left, the paper's own plan and the given order among it, and each pass of the best alone.
std::vector<StepChoice> ChoicesOf(const LancetSchedule& schedule) {
  std::vector<StepChoice> choices;
  for (const LancetCandidate& candidate : schedule.candidates) choices.push_back({candidate.ranges, candidate.places});
  for (const StepChoice& part : {StepChoice{schedule.ranges, {}}, StepChoice{{}, schedule.places}, StepChoice()}) {
    if (std::ranges::find(choices, part) == choices.end()) choices.push_back(part);
  }
  return choices;
}

// Weight gradients that stay where they are, whatever they could cover.
std::string ForwardGradients(const TrainingGraph& graph) {
  for (const Instruction& one : graph.instructions) {
    if (!one.weight_gradient || one.phase == Pass::kBackward) continue;
    return StrCat(one.id, ": weightGradient in phase FORWARD; it is not moved");
  }
  return {};
}

}  // namespace

StatusOr<GraphPlanAnswer> PlanGraph(const TrainingGraph& given_graph, const Profile* profile,
                                    const LancetOptions& options, std::stop_token cancelled) {
  const auto check_cancelled = [&] {
    return cancelled.stop_requested() ? Cancelled("planning was cancelled before it was done") : OkStatus();
  };
  RETURN_IF_ERROR(ValidateTrainingGraph(given_graph));
  RETURN_IF_ERROR(check_cancelled());
  PriceNotes notes;
  ASSIGN_OR_RETURN(const PartsAsRun as_run, WithPartsAsRun(given_graph, profile, notes, cancelled));
  const TrainingGraph& graph = as_run.graph;
  ASSIGN_OR_RETURN(const TimedGraph timed, TimeGraph(graph, profile, notes));
  RETURN_IF_ERROR(check_cancelled());
  LancetSchedule schedule = ChooseSchedule(timed, options, cancelled);
  RETURN_IF_ERROR(check_cancelled());
  Judge judge(graph, timed, profile);
  const JudgedChoice given = *judge.Play({});
  const JudgedChoice chosen = judge.Choose(ChoicesOf(schedule), cancelled);
  RETURN_IF_ERROR(check_cancelled());
  schedule.ranges = chosen.choice.ranges;
  schedule.places = chosen.choice.places;
  schedule.time_s = chosen.played.total_s;
  schedule.unscheduled_s = given.played.total_s;
  if (judge.notes() != nullptr) notes.Merge(*judge.notes());
  GraphPlanAnswer answer;
  if (profile != nullptr) {
    answer.profile_name = profile->name;
    answer.profile_version = profile->version;
  }
  answer.lancet = AnswerOf(graph, judge, chosen, given);
  answer.graph = graph;
  if (const std::string remark = ForwardGradients(graph); !remark.empty()) notes.remarks.insert(remark);
  if (!schedule.all_ranges) {
    notes.remarks.insert("rule lancet: the longest ranges were not tried; groupS and maxRangeS make fewer of them");
  }
  answer.warnings = notes.Warnings();
  answer.explanation = Explain(graph, schedule, answer.lancet, options.passes, as_run.factors);
  return answer;
}

}  // namespace moeplan::planner
