#include "planner/rules/choices.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "models/memory/graph_memory.h"
#include "models/schedule/schedules.h"
#include "models/timeline/price.h"
#include "models/training/training_graph.h"
#include "planner/rules/lancet.h"
#include "planner/rules/monta.h"
#include "planner/rules/parm.h"
#include "planner/rules/schemoe.h"

namespace moeplan::planner {
namespace {

std::optional<Knobs> Parm(const Workload& workload, const Profile& profile) {
  PriceNotes notes;
  const StatusOr<ParmAnswer> answer = ParmRule(workload, profile, notes);
  if (!answer.ok()) return std::nullopt;
  Knobs knobs{.family = answer->choice, .overlapped_gather = answer->choice == Family::kParmS2};
  if (!OverlappedGatherAllowed(knobs, workload.layout).ok()) knobs.overlapped_gather = false;
  return knobs;
}

std::optional<Knobs> Monta(const Workload& workload, const Profile& profile) {
  PriceNotes notes;
  const StatusOr<MontaAnswer> answer = MontaRule(workload, profile, notes);
  if (!answer.ok()) return std::nullopt;
  Knobs knobs{.family = answer->choice};
  if (answer->choice == Family::kMontaO2) knobs.chunks = answer->o2->chunks;
  if (answer->choice == Family::kMontaO3) knobs.chunks = answer->o3->chunks;
  return knobs;
}

std::optional<Knobs> Schemoe(const Workload& workload, const Profile& profile) {
  PriceNotes notes;
  const StatusOr<SchemoeAnswer> answer = SchemoeRule(workload, profile, notes);
  if (!answer.ok()) return std::nullopt;
  Knobs knobs{.family = Family::kPipeline,
              .partition_degree = std::min(answer->partition_degree, MaxPieces(Family::kPipeline, workload)),
              .all_to_all = AllToAllAlgorithm::kPipe};
  if (!ScheduleAllowed(knobs, workload, profile.cluster).ok()) knobs.all_to_all = AllToAllAlgorithm::kDirect;
  const auto allowed = [&](Codec codec) {
    return CodecAllowed(codec, Family::kPipeline, workload).ok() ? codec : Codec::kNone;
  };
  knobs.dispatch_codec = allowed(workload.dispatch_codec);
  knobs.combine_codec = allowed(workload.combine_codec);
  return knobs;
}

// The range that Lancet cuts, from the prices of PIPELINE in 1, 2, ... pieces; absent where some are missing.
std::optional<TrainingGraph> RangeOf(Workload workload, const Profile& profile) {
  workload.phase = Phase::kForward;
  workload.gradient_bytes = 0;
  TrainingGraph range{
      .instructions = {
          {.id = "dispatch_a2a", .op = InstructionOp::kAllToAll, .outputs = {"rows"}},
          {.id = "experts", .op = InstructionOp::kExpert, .inputs = {"rows"}, .outputs = {"results"}},
          {.id = "combine_a2a", .op = InstructionOp::kAllToAll, .inputs = {"results"}, .outputs = {"slots"}}}};
  range.max_parts = MaxPieces(Family::kPipeline, workload);
  CostIndex index(profile);
  for (int parts = 1; parts <= range.max_parts; ++parts) {
    const StatusOr<TaskGraph> graph =
        BuildSchedule({.family = Family::kPipeline, .partition_degree = parts}, workload, profile.cluster);
    if (!graph.ok()) return std::nullopt;
    const GraphPrices prices = PriceGraph(*graph, index);
    if (!prices.missing.empty()) return std::nullopt;
    double stages_s[3] = {};  // What the first piece spends before, in and after the experts.
    int stage = 0;
    for (size_t i = 0; i < graph->tasks.size(); ++i) {
      const Task& task = graph->tasks[i];
      if (task.chunk != 0) continue;
      if (task.kind == TaskKind::kExpert) stage = 1;
      if (stage == 1 && task.kind == TaskKind::kAllToAll) stage = 2;
      if (task.kind == TaskKind::kExpert || task.stream != StreamKind::kCompute)
        stages_s[stage] += prices.tasks[i].time_s;
    }
    for (int i = 0; i < 3; ++i) range.instructions[i].part_times_s.push_back(stages_s[i]);
  }
  for (Instruction& one : range.instructions) one.time_s = one.part_times_s.front();
  return range;
}

std::optional<Knobs> CutRangeOf(const Workload& workload, const Profile& profile) {
  const std::optional<TrainingGraph> range = RangeOf(workload, profile);
  if (!range) return std::nullopt;
  const StatusOr<GraphPlanAnswer> answer = PlanGraph(*range, &profile);
  if (!answer.ok()) return std::nullopt;
  const auto& cuts = answer->lancet.partitions;
  return Knobs{.family = Family::kPipeline, .partition_degree = cuts.empty() ? 1 : cuts.front().parts};
}

bool Runs(const Knobs& knobs, const Workload& workload, const Cluster& cluster) {
  const StatusOr<TaskGraph> graph = BuildSchedule(knobs, workload, cluster);
  if (!graph.ok()) return false;
  return cluster.device_memory_bytes <= 0 || MemoryBytes(*graph, workload) <= cluster.device_memory_bytes;
}

}  // namespace

std::vector<PaperChoice> ChoicesOfPapers(const Workload& workload, const Profile& profile) {
  const std::pair<const char*, std::optional<Knobs>> papers[] = {{"parm", Parm(workload, profile)},
                                                                 {"monta", Monta(workload, profile)},
                                                                 {"schemoe", Schemoe(workload, profile)},
                                                                 {kCutRange, CutRangeOf(workload, profile)}};
  std::vector<PaperChoice> choices;
  for (const auto& [paper, knobs] : papers) {
    if (knobs && Runs(*knobs, workload, profile.cluster)) choices.push_back({.paper = paper, .knobs = *knobs});
  }
  return choices;
}

}  // namespace moeplan::planner
