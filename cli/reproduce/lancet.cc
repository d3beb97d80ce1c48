#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/reproduce/papers.h"
#include "cli/reproduce/rows.h"
#include "models/measurement/cost_key.h"
#include "models/model/model_config.h"
#include "models/text.h"
#include "planner/lancet/model_graph.h"
#include "planner/lancet/paper_plan.h"
#include "planner/lancet/schedule.h"
#include "planner/search/plan_layer.h"

namespace moeplan::cli {
namespace {

constexpr const char* kWhySpeedup =
    "the stand-in for Tutel overlaps both passes at no cost of its own, and the network is simulated at its line rate";
constexpr const char* kWhyCut =
    "nearly all is covered on 16 GPUs, where compute is longest beside the all-to-alls; these take no processors from "
    "GEMMs here, and the planner tries more ranges than the paper's passes";
constexpr const char* kWhyRatio =
    "the network is simulated at its line rate, as what it reached is not said; at 81 % of that it would be 3.36";
constexpr const char* kWhyParts =
    "a part more costs launches of 6 µs here and little of a GEMM's efficiency; how little it gains, the next row says";

constexpr int kSequenceLength = 512;
constexpr int kExpertsPerGpu = 2;
constexpr int kHeadDim = 64;
constexpr int kMostParts = 8;
constexpr int kPaperParts = 4;  // That the paper never finds more than to be best.
constexpr int kGpus[] = {16, 32, 64};

struct Model {
  const char* name;
  int layers, model_dim;
};
constexpr Model kModels[] = {{"GPT2-S", 12, 768}, {"GPT2-L", 24, 1024}};

struct Gate {
  const char* name;
  GateKind kind;
};
constexpr Gate kGates[] = {{"Switch gate", GateKind::kSwitch}, {"Batch Prioritized gate", GateKind::kBatchPrioritized}};

struct Machines {
  const char* name;
  const char* testbed;
  std::array<int, 2> batches;                           // Samples of a GPU, by kModels.
  std::array<double, 2> largest_speedup, mean_speedup;  // The paper's, by kGates.
  double cut_over_tutel, cut_over_raf;                  // The paper's largest cuts of exposed communication.
};
constexpr Machines kMachines[] = {
    {"A100", "lancet-p4de", {24, 48}, {1.21, 1.24}, {1.17, 1.17}, 0.66, 0.69},
    {"V100", "lancet-p3dn", {16, 8}, {1.30, 1.24}, {1.22, 1.21}, 0.77, 0.83},
};

// Every other layer has experts.
ModelConfig ConfigOf(const Model& model, int gpus) {
  ModelConfig config = {.model_dim = model.model_dim,
                        .dense_hidden_dim = 4 * model.model_dim,
                        .heads = model.model_dim / kHeadDim,
                        .kv_heads = model.model_dim / kHeadDim,
                        .head_dim = kHeadDim,
                        .experts = kExpertsPerGpu * gpus,
                        .top_k = 1,
                        .expert_hidden_dim = 4 * model.model_dim,
                        .vocab = 50257};
  for (int layer = 0; layer < model.layers; ++layer) config.moe_layer.push_back(layer % 2 == 1);
  return config;
}

Workload LayerOf(const Model& model, int batch, int gpus) {
  Workload workload;
  workload.name = StrCat(model.name, " on ", gpus);
  workload.layer = {.batch = batch,
                    .sequence_length = kSequenceLength,
                    .model_dim = model.model_dim,
                    .hidden_dim = 4 * model.model_dim,
                    .experts = kExpertsPerGpu * gpus,
                    .top_k = 1,
                    .capacity_factor = 1,
                    .bytes_per_element = 4,
                    .expert_matrices = 2,
                    .gate = GateKind::kSwitch};
  workload.layout = {.expert_parallel = gpus};
  workload.phase = Phase::kTraining;
  return workload;
}

// What the times of the model's instructions and of their parts are looked up from: powers of two from the smallest
// part to what is largest, the product with the vocabulary.
std::vector<agent::Measurement> NeedsOfModel(const Workload& layer, const ModelConfig& model, int ranks_per_node) {
  std::vector<agent::Measurement> needs;
  const auto add = [&](const CostKey& key, double smallest, double largest) {
    for (double size = smallest; size < 2 * largest; size *= 2) {
      needs.push_back({.need = {.key = Essential(key), .size = size}, .context = layer});
    }
  };
  const LayerSizes sizes = SizesOf(layer.layer, layer.layout);
  const double experts = ExpertFlops(layer.layer, /*shards=*/1, sizes.tokens);
  const double head = 2 * sizes.tokens * model.vocab * model.model_dim;
  const auto kernel = [&](Kernel kernel) { return KeyOf(kernel, layer.layer, layer.layout); };
  for (const Kernel product : {Kernel::kExpertGemm, Kernel::kExpertInputGradient, Kernel::kExpertWeightGradient}) {
    add(kernel(product), experts / 256, head);
  }
  const double x = sizes.input_bytes;
  add(kernel(Kernel::kDeviceCopy), x / kMostParts, sizes.tokens * model.vocab * layer.layer.bytes_per_element);
  add(kernel(Kernel::kGate), x / kMostParts, 4 * x);
  add(kernel(Kernel::kPermute), x / kMostParts, 2 * x);
  add(KeyOf(Collective::kAllToAll, Group::kExpert, layer.layout, ranks_per_node), x / kMostParts, x);
  // Sums of gradients, in buckets of 25 MiB or of the whole embedding.
  const double embedding = 1.0 * model.vocab * model.model_dim * layer.layer.bytes_per_element;
  add(KeyOf(Collective::kAllReduce, Group::kExpert, layer.layout, ranks_per_node), 25 << 20, embedding);
  return needs;
}

// ---- An iteration by the planner's timeline.

struct Iteration {
  double time_s = 0;
  double exposed_s = 0;  // While a collective runs and the compute stream does not.
};

struct Interval {
  double start_s, end_s;
};

// Those that meet as one, ascending.
std::vector<Interval> Merged(std::vector<Interval> intervals) {
  std::ranges::sort(intervals, {}, &Interval::start_s);
  std::vector<Interval> merged;
  for (const Interval& one : intervals) {
    if (merged.empty() || one.start_s > merged.back().end_s) {
      merged.push_back(one);
    } else {
      merged.back().end_s = std::max(merged.back().end_s, one.end_s);
    }
  }
  return merged;
}

Iteration Play(const planner::TimedGraph& graph, std::span<const planner::PartLaunch> order) {
  std::vector<Interval> exchanges, computes;  // The latter ascending.
  planner::StepTimeline timeline(graph);
  for (const planner::PartLaunch& launch : order) {
    timeline.Run(launch);
    const planner::TimedInstruction& one = graph.instructions[launch.instruction];
    const double end_s = timeline.streams()[one.stream];
    (one.stream == StreamKind::kCompute ? computes : exchanges)
        .push_back({end_s - one.part_s[launch.parts - 1], end_s});
  }
  Iteration iteration = {.time_s = timeline.streams().end_s()};
  auto compute = computes.begin();
  for (const Interval& exchange : Merged(std::move(exchanges))) {
    iteration.exposed_s += exchange.end_s - exchange.start_s;
    while (compute != computes.end() && compute->end_s <= exchange.start_s) ++compute;
    for (auto beside = compute; beside != computes.end() && beside->start_s < exchange.end_s; ++beside) {
      iteration.exposed_s -= std::min(exchange.end_s, beside->end_s) - std::max(exchange.start_s, beside->start_s);
    }
  }
  return iteration;
}

// ---- The stand-in for Tutel: all-to-alls and experts in parts, forward and backward, and nothing else moved.

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
    if (one.op != InstructionOp::kAllToAll && one.op != InstructionOp::kExpert) continue;
    if (one.phase == Pass::kForward) {
      forward.emplace(one.op, &one);
      continue;
    }
    const planner::TimedInstruction& like = *forward.at(one.op);
    const double whole_s = one.whole_s();
    one.part_s = like.part_s;
    for (double& part_s : one.part_s) part_s *= whole_s / like.whole_s();
  }
  return graph;
}

Iteration Tutel(const planner::TimedGraph& without_parts) {
  const planner::TimedGraph graph = WithBackwardParts(without_parts);
  Iteration best;
  for (const int degree : {1, 2, 4, 8}) {
    std::vector<planner::PartLaunch> order;
    int next = 0;
    const auto whole_until = [&](int end) {
      for (; next < end; ++next) order.push_back({.instruction = next});
    };
    for (const planner::CutRange& range : TutelRanges(graph, degree)) {
      whole_until(range.first);
      planner::AppendRange(graph, range, order);
      next = range.last + 1;
    }
    whole_until(graph.size());
    const Iteration iteration = Play(graph, order);
    if (degree == 1 || iteration.time_s < best.time_s) best = iteration;
  }
  return best;
}

// ---- One model on one cluster with one gate.

struct Outcome {
  Iteration raf, tutel, lancet;
  double in_paper_parts_s = 0;  // Of Lancet with no more parts than the paper finds,
  double of_paper_s = 0;        // of the paper's own algorithm,
  double unlimited_s = 0;       // and of Lancet without limits of groups and ranges.
  int most_parts = 1;
  double exchanges_over_experts = 0;

  double OverRaf() const { return raf.time_s / lancet.time_s; }
  double OverFaster() const { return std::min(raf.time_s, tutel.time_s) / lancet.time_s; }
  double CutOver(const Iteration& other) const { return 1 - lancet.exposed_s / other.exposed_s; }
};

double SumOf(const planner::TimedGraph& graph, InstructionOp op) {
  double sum_s = 0;
  for (const planner::TimedInstruction& one : graph.instructions) sum_s += one.op == op ? one.whole_s() : 0;
  return sum_s;
}

StatusOr<Outcome> PlanModel(const ModelConfig& model, const planner::ModelGraphOptions& options,
                            const Profile& profile) {
  PriceNotes notes;
  ASSIGN_OR_RETURN(const TrainingGraph graph, planner::TrainingGraphOf(model, options, profile, notes));
  ASSIGN_OR_RETURN(const planner::TimedGraph timed, planner::TimeGraph(graph, &profile, notes));
  const planner::LancetSchedule schedule = planner::ChooseSchedule(timed);
  std::vector<planner::PartLaunch> given;
  for (int i = 0; i < timed.size(); ++i) given.push_back({.instruction = i});
  Outcome outcome = {.raf = Play(timed, given), .tutel = Tutel(timed), .lancet = Play(timed, schedule.order)};
  planner::TimedGraph in_paper_parts = timed;
  in_paper_parts.max_parts = kPaperParts;
  outcome.in_paper_parts_s = planner::ChooseSchedule(in_paper_parts).time_s;
  outcome.of_paper_s = planner::PlanOfPaper(timed).time_s;
  planner::TimedGraph unlimited = timed;
  unlimited.group_s = unlimited.max_range_s = 0;
  outcome.unlimited_s = planner::ChooseSchedule(unlimited).time_s;
  for (const planner::CutRange& range : schedule.ranges) outcome.most_parts = std::max(outcome.most_parts, range.parts);
  outcome.exchanges_over_experts = SumOf(timed, InstructionOp::kAllToAll) / SumOf(timed, InstructionOp::kExpert);
  return outcome;
}

// ---- The rows.

struct Results {
  std::map<std::pair<const Machines*, const Gate*>, std::vector<Outcome>> outcomes;
  std::vector<double> errors;  // Of the predicted times of MoE layers.

  const std::vector<Outcome>& Of(const Machines& machines, const Gate& gate) const {
    return outcomes.at({&machines, &gate});
  }
};

// |predicted − simulated| / simulated of the layer as the joint search plans it.
StatusOr<double> ErrorOf(Testbed& testbed, const Workload& layer) {
  ASSIGN_OR_RETURN(const Profile profile, testbed.Calibrate(agent::MeasurementsOf({layer}, testbed.cluster())));
  ASSIGN_OR_RETURN(const PlanAnswer answer, planner::PlanLayer(layer, profile, {.top = 1, .rules = false}));
  const Plan& plan = answer.candidates.front();
  ASSIGN_OR_RETURN(const std::vector<double> times_s, testbed.TimesS({{.workload = layer, .plan = plan}}));
  return std::abs(plan.predicted_time_s - times_s.front()) / times_s.front();
}

Status RunOn(const Machines& machines, int gpus, const ShowProgress& progress, Results& results) {
  ASSIGN_OR_RETURN(SimulatedCluster cluster, FindTestbed(machines.testbed));
  cluster.nodes = gpus / cluster.gpus_per_node;
  ASSIGN_OR_RETURN(Testbed testbed, Testbed::Start(cluster, progress));
  for (size_t i = 0; i < std::size(kModels); ++i) {
    const ModelConfig model = ConfigOf(kModels[i], gpus);
    ASSIGN_OR_RETURN(const Workload layer,
                     ResolveWorkload(LayerOf(kModels[i], machines.batches[i], gpus), testbed.cluster()));
    ASSIGN_OR_RETURN(const Profile profile, testbed.Calibrate(NeedsOfModel(layer, model, cluster.gpus_per_node)));
    for (const Gate& gate : kGates) {
      ASSIGN_OR_RETURN(const Outcome outcome, PlanModel(model,
                                                        {.batch = machines.batches[i],
                                                         .sequence_length = kSequenceLength,
                                                         .expert_parallel = gpus,
                                                         .ranks_per_node = cluster.gpus_per_node,
                                                         .capacity_factor = 1,
                                                         .bytes_per_element = 4,
                                                         .gate = gate.kind,
                                                         .max_parts = kMostParts,
                                                         .zero_stage = 0,
                                                         .paper_limits = true},
                                                        profile));
      results.outcomes[{&machines, &gate}].push_back(outcome);
    }
    ASSIGN_OR_RETURN(results.errors.emplace_back(), ErrorOf(testbed, layer));
  }
  return OkStatus();
}

template <typename Value>
std::vector<double> Each(const std::vector<Outcome>& outcomes, Value value) {
  std::vector<double> values;
  for (const Outcome& outcome : outcomes) values.push_back(value(outcome));
  return values;
}

v1::ReproducedTable Speedups(const Results& results, const char* baseline, double (Outcome::*speedup)() const) {
  v1::ReproducedTable table =
      MakeTable("lancet", StrCat("Lancet, Figures 11 and 12: an iteration's speedup over ", baseline,
                                 ", on 16 to 64 GPUs, by the planner's timeline of calibrated costs"));
  for (size_t gate = 0; gate < std::size(kGates); ++gate) {
    for (const Machines& machines : kMachines) {
      const std::vector<double> speedups =
          Each(results.Of(machines, kGates[gate]), [&](const Outcome& one) { return (one.*speedup)(); });
      const auto add = [&](const char* what, std::optional<double> paper, double ours) {
        AddRow(table, Figure{.name = StrCat(machines.name, ", ", kGates[gate].name, ": ", what),
                             .paper = paper,
                             .ours = ours,
                             .why = kWhySpeedup});
      };
      add("largest", machines.largest_speedup[gate], std::ranges::max(speedups));
      add("mean", machines.mean_speedup[gate], Mean(speedups));
      add("least", {}, std::ranges::min(speedups));
    }
  }
  return table;
}

v1::ReproducedTable Cuts(const Results& results) {
  v1::ReproducedTable table =
      MakeTable("lancet", "Lancet, Figure 13: exposed communication, the largest cut, by the same timeline");
  for (const Machines& machines : kMachines) {
    const auto add = [&](const char* name, Iteration Outcome::*other, double paper) {
      double largest = 0;
      for (const Gate& gate : kGates) {
        for (const Outcome& outcome : results.Of(machines, gate)) {
          largest = std::max(largest, outcome.CutOver(outcome.*other));
        }
      }
      AddRow(table, Figure{.name = StrCat(machines.name, ", over ", name),
                           .unit = kShare,
                           .paper = paper,
                           .ours = largest,
                           .why = kWhyCut});
    };
    add("Tutel", &Outcome::tutel, machines.cut_over_tutel);
    add("RAF", &Outcome::raf, machines.cut_over_raf);
  }
  return table;
}

v1::ReproducedTable Others(const Results& results) {
  v1::ReproducedTable table = MakeTable("lancet", "Lancet, §2.2, §5.1 and §7.2");
  const Machines& v100 = kMachines[1];
  int most_parts = 1;
  double most_lost = 0, most_by_paper = 0, most_by_limits = 0;
  for (const auto& [where, outcomes] : results.outcomes) {
    for (const Outcome& outcome : outcomes) {
      const double time_s = outcome.lancet.time_s;
      most_parts = std::max(most_parts, outcome.most_parts);
      most_lost = std::max(most_lost, outcome.in_paper_parts_s / time_s - 1);
      most_by_paper = std::max(most_by_paper, outcome.of_paper_s / time_s - 1);
      most_by_limits = std::max(most_by_limits, time_s / outcome.unlimited_s - 1);
    }
  }
  AddRow(table, Figure{.name = "V100: all-to-alls over experts, at most",
                       .paper = 3.36,
                       .ours = std::ranges::max(Each(results.Of(v100, kGates[0]),
                                                     [](const Outcome& one) { return one.exchanges_over_experts; })),
                       .why = kWhyRatio});
  AddRow(table,
         Figure{.name = "parts of a range, at most", .unit = kCount, .paper = 4, .ours = most_parts, .why = kWhyParts});
  AddRow(table, Figure{.name = "time lost with 4 parts at most, largest", .unit = kShare, .ours = most_lost});
  AddRow(
      table,
      Figure{.name = "time lost by the paper's own greedy and ranges, largest", .unit = kShare, .ours = most_by_paper});
  AddRow(
      table,
      Figure{.name = "time lost by its limits of groups and ranges, largest", .unit = kShare, .ours = most_by_limits});
  AddRow(table, Figure{.name = "prediction error of an iteration, mean", .unit = kShare, .paper = 0.0383});
  AddRow(table, Figure{.name = "prediction error of its MoE layers, planned and simulated, mean",
                       .unit = kShare,
                       .ours = Mean(results.errors)});
  return table;
}

}  // namespace

StatusOr<Tables> ReproduceLancet(const ShowProgress& progress) {
  Results results;
  for (const Machines& machines : kMachines) {
    for (const int gpus : kGpus) RETURN_IF_ERROR(RunOn(machines, gpus, progress, results));
  }
  return Tables{Speedups(results, "RAF", &Outcome::OverRaf),
                Speedups(results, "the faster of RAF and Tutel", &Outcome::OverFaster), Cuts(results), Others(results)};
}

}  // namespace moeplan::cli
