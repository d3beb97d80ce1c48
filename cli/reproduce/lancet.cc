#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/compare/run_step.h"
#include "cli/options.h"
#include "cli/reproduce/lancet/compared_step.h"
#include "cli/reproduce/lancet/measured_models.h"
#include "cli/reproduce/lancet/partition_range.h"
#include "cli/reproduce/papers.h"
#include "cli/reproduce/rows.h"
#include "models/text.h"

namespace moeplan::cli {
namespace {

constexpr const char* kWhyGain =
    "the stand-in for Tutel leaves less exposed than the paper's Tutel (the table of Figure 13), and has Lancet's own "
    "kernels; the next two tables have the gain over RAF, which is Lancet's own engine, and over a Tutel that hides "
    "less";
constexpr const char* kWhyCut =
    "on 16 GPUs compute is longest beside the all-to-alls; were these as long beside experts as Figure 2 says of V100, "
    "the cut over RAF would be within 10 points (a table below)";
constexpr const char* kWhyAblation =
    "parts cost ranges launches of 6 µs here and no efficiency of a GEMM, where §7.4 speaks of overheads of many "
    "layers with small batches; the smallest batch does not turn it round (three rows of batch 8)";
constexpr const char* kWhyRatio =
    "the network is simulated at its line rate, as what it reached is not said; at 81 % of that it would be 3.36";
constexpr const char* kWhyParts =
    "a part more costs launches of 6 µs here and no efficiency of a GEMM; how little 4 parts lose, a table above says";

// Differs from call to call.
constexpr const char* kPlanningRow = "longest planning (wall time here)";

constexpr int kPaperParts = 4;     // That the paper never finds more than to be best.
constexpr int kAblationGpus = 32;  // Figure 16: 4 nodes.
constexpr int kRunGpus = 16;       // Few, because every rank of a simulation takes its turn.
constexpr double kPaperRatio = 3.36;
constexpr double kPaperPlanningS = 20 * 60;
constexpr double kPaperError = 0.0383;
constexpr Allowed kGainAllowed = {.share = 0.25};
constexpr Allowed kCutAllowed = {.points = 0.1};

// do_one(i) for every i below `count`, spread over the processors; the error of the lowest i.
Status ForEach(size_t count, const std::function<Status(size_t)>& do_one) {
  std::vector<Status> statuses(count, OkStatus());
  std::atomic<size_t> next = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < DefaultThreads(); ++i) {
      threads.emplace_back([&] {
        for (size_t mine = next++; mine < count; mine = next++) statuses[mine] = do_one(mine);
      });
    }
  }
  for (const Status& status : statuses) RETURN_IF_ERROR(status);
  return OkStatus();
}

// ---- What is compared.

// A step to be compared, and then compared.
struct Case {
  const MeasuredModel* of = nullptr;
  size_t gate = 0;
  StepChanges changes;
  ComparedStep step;
};

Status CompareAll(std::vector<Case>& cases) {
  return ForEach(cases.size(), [&](size_t i) -> Status {
    Case& one = cases[i];
    ASSIGN_OR_RETURN(one.step, CompareStep(one.of->graphs[one.gate], one.of->profile, one.changes));
    return OkStatus();
  });
}

std::vector<Case> CasesOf(const Setting& setting) {
  std::vector<Case> cases;
  for (const MeasuredModel& model : setting.models) {
    for (size_t gate = 0; gate < std::size(kGates); ++gate)
      cases.push_back({.of = &model, .gate = gate, .changes = {}, .step = {}});
  }
  return cases;
}

// Compares both models on so many of the machines again, with the Switch gate and changes.
std::vector<Case> ChangedCases(const Setting& setting, const Machines& machines, int gpus, const StepChanges& changes) {
  std::vector<Case> cases;
  for (const MeasuredModel& model : setting.models) {
    if (model.machines != &machines || model.gpus != gpus) continue;
    cases.push_back({.of = &model, .gate = 0, .changes = changes, .step = {}});
  }
  return cases;
}

using Measure = std::function<double(const Machines&, const ComparedStep&)>;

std::vector<double> Each(const std::vector<Case>& cases, const Machines& machines, std::optional<size_t> gate,
                         const Measure& measure) {
  std::vector<double> values;
  for (const Case& one : cases) {
    if (one.of->machines == &machines && (!gate || one.gate == *gate)) values.push_back(measure(machines, one.step));
  }
  return values;
}

double GainOverFaster(const Machines&, const ComparedStep& step) { return Gain(step.faster(), step.lancet); }
double GainOverRaf(const Machines&, const ComparedStep& step) { return Gain(step.raf, step.lancet); }
// Over a Tutel that hides as much of RAF's exposed communication as the paper's does by Figure 13.
double GainOverPapersTutel(const Machines& machines, const ComparedStep& step) {
  const double hidden_s = (1 - machines.ExposedByTutel()) * step.raf.exposed_s;
  return Gain({.time_s = step.raf.time_s - hidden_s}, step.lancet);
}
double CutOverTutel(const Machines&, const ComparedStep& step) { return Cut(step.tutel, step.lancet); }
double CutOverRaf(const Machines&, const ComparedStep& step) { return Cut(step.raf, step.lancet); }
double ExposedByTutel(const Machines&, const ComparedStep& step) { return 1 - Cut(step.raf, step.tutel); }
double PaperGainOverFaster(const Machines&, const ComparedStep& step) { return Gain(step.faster(), step.paper); }
double PaperCutOverRaf(const Machines&, const ComparedStep& step) { return Cut(step.raf, step.paper); }

// ---- The rows.

// The paper's figures are compared once, with the gain over the faster of its baselines, and only counted with others.
v1::ReproducedTable Gains(const std::vector<Case>& cases, const std::string& baseline, const Measure& gain,
                          bool compared) {
  v1::ReproducedTable table =
      MakeTable("lancet", StrCat("Lancet, Figures 11 and 12: an iteration's gain (speedup less 1) over ", baseline,
                                 ", 16 to 64 GPUs, with gradients summed and with contention",
                                 compared ? "; holds within 25 % of the paper's gain" : "; not counted a second time"));
  int figures = 0, within = 0;
  for (size_t gate = 0; gate < std::size(kGates); ++gate) {
    for (const Machines& machines : kMachines) {
      const std::vector<double> gains = Each(cases, machines, gate, gain);
      const auto add = [&](const char* what, double paper, double ours) {
        ++figures;
        within += kGainAllowed.Holds(paper - 1, ours) ? 1 : 0;
        AddRow(table, Figure{.name = StrCat(machines.name, ", ", kGates[gate].name, " gate: ", what),
                             .unit = kShare,
                             .paper = paper - 1,
                             .ours = ours,
                             .why = kWhyGain,
                             .compared = compared,
                             .allowed = kGainAllowed});
      };
      add("largest", machines.largest_speedup[gate], std::ranges::max(gains));
      add("mean", machines.mean_speedup[gate], Mean(gains));
    }
  }
  if (!compared) {
    AddRow(table, Figure{.name = "of these within 25 % of the paper's gain",
                         .unit = kCount,
                         .paper = figures,
                         .ours = within,
                         .why = {},
                         .compared = false});
  }
  return table;
}

v1::ReproducedTable Cuts(const std::vector<Case>& cases) {
  v1::ReproducedTable table = MakeTable("lancet",
                                        "Lancet, Figure 13: exposed communication, the largest cut, in the same steps; "
                                        "holds within 10 points");
  for (const Machines& machines : kMachines) {
    const auto add = [&](const char* name, const Measure& cut, double paper) {
      AddRow(table, Figure{.name = StrCat(machines.name, ", over ", name),
                           .unit = kShare,
                           .paper = paper,
                           .ours = std::ranges::max(Each(cases, machines, {}, cut)),
                           .why = kWhyCut,
                           .allowed = kCutAllowed});
    };
    add("Tutel", CutOverTutel, machines.cut_over_tutel);
    add("RAF", CutOverRaf, machines.cut_over_raf);
  }
  for (const Machines& machines : kMachines) {
    AddRow(table, Figure{.name = StrCat(machines.name, ": of RAF's left by Tutel, mean"),
                         .unit = kShare,
                         .paper = machines.ExposedByTutel(),
                         .ours = Mean(Each(cases, machines, {}, ExposedByTutel)),
                         .why = {},
                         .compared = false});
  }
  return table;
}

double LargestRatio(const Setting& setting) {
  double largest = 0;
  for (const MeasuredModel& model : setting.models) {
    if (model.machines != &kMachines[1]) continue;
    const TrainingGraph& graph = model.graphs.front();
    largest = std::max(largest, SumS(graph, InstructionOp::kAllToAll) / SumS(graph, InstructionOp::kExpert));
  }
  return largest;
}

// Figure 16 has no numbers; its text has statements.
Status AddAblation(const Setting& setting, Tables& tables) {
  struct Passes {
    const char* name;
    planner::LancetPasses passes;
  };
  constexpr Passes kPasses[] = {
      {"weight gradients alone", {.partition = false}}, {"ranges alone", {.weight_gradients = false}}, {"both", {}}};
  std::vector<const MeasuredModel*> models;
  for (const MeasuredModel& model : setting.models) {
    if (model.gpus == kAblationGpus) models.push_back(&model);
  }
  models.push_back(&setting.small_batch.front());
  std::vector<Case> cases;
  for (const MeasuredModel* const model : models) {
    for (const Passes& one : kPasses)
      cases.push_back({.of = model, .gate = 0, .changes = {.passes = one.passes}, .step = {}});
  }
  RETURN_IF_ERROR(CompareAll(cases));
  v1::ReproducedTable& table = tables.emplace_back(
      MakeTable("lancet",
                "Lancet, Figure 16: gain over RAF of one pass alone and of both, Switch gate, 32 GPUs; the figure has "
                "no numbers, §7.4 has statements"));
  std::map<std::pair<const Machines*, const Model*>, std::array<double, std::size(kPasses)>> gains;
  for (size_t i = 0; i < cases.size(); ++i) {
    const MeasuredModel& of = *cases[i].of;
    const size_t pass = i % std::size(kPasses);
    const double gain = Gain(cases[i].step.raf, cases[i].step.lancet);
    if (of.gpus == kAblationGpus) gains[{of.machines, of.model}][pass] = gain;
    const std::string also = of.gpus == kAblationGpus ? "" : StrCat(", batch ", of.batch, " on ", of.gpus);
    AddRow(table, Figure{.name = StrCat(of.machines->name, ", ", of.model->name, also, ": ", kPasses[pass].name),
                         .unit = kShare,
                         .ours = gain});
  }
  const auto say = [&](const std::string& what, bool ours) {
    AddRow(table, Choice{.name = what, .paper = "yes", .ours = ours ? "yes" : "no", .ratio = {}, .why = kWhyAblation});
  };
  for (const Machines& machines : kMachines) {
    const auto& small = gains.at({&machines, &kModels[0]});
    const auto& large = gains.at({&machines, &kModels[1]});
    const auto both_gain_more = [](const auto& one) { return one[2] > std::max(one[0], one[1]); };
    const auto apart = [](const auto& one) { return std::abs(one[0] - one[1]) / one[2]; };
    say(StrCat(machines.name, ": both gain more than either alone"), both_gain_more(small) && both_gain_more(large));
    say(StrCat(machines.name, ", GPT2-L: weight gradients gain more"), large[0] > large[1]);
    say(StrCat(machines.name, ", GPT2-S: the two are closer"), apart(small) < apart(large));
  }
  return OkStatus();
}

// Figure 6.
Status AddRanges(const Setting& setting, Tables& tables) {
  v1::ReproducedTable& table = tables.emplace_back(
      MakeTable("lancet",
                "Lancet, Figure 6: forward time saved by ranges that reach so far around each layer of "
                "experts, 16 A100, Switch gate; the figure has no numbers"));
  bool whole_is_best = true;
  // Less layers with large batches, and more layers with small ones: the first to be measured has the former.
  for (const MeasuredModel* const model : {&setting.models.front(), &setting.small_batch.front()}) {
    const MeasuredModel& of = *model;
    const TrainingGraph& graph = of.graphs.front();
    ASSIGN_OR_RETURN(const double uncut_s, UncutForwardS(graph, of.profile));
    ASSIGN_OR_RETURN(const std::vector<ReachedForward> forwards,
                     ForwardByReach(graph, of.profile, {0, 0.25, 0.5, 0.75, 1}));
    for (const ReachedForward& one : forwards) {
      const std::string reach = one.reach == 0   ? "experts alone"
                                : one.reach == 1 ? "all between"
                                                 : StrCat(Percent(one.reach), " of what is between");
      AddRow(table, Figure{.name = StrCat(of.model->name, ", batch ", of.batch, ": ", reach),
                           .unit = kShare,
                           .ours = 1 - one.forward_s / uncut_s});
    }
    const auto best = std::ranges::min_element(forwards, {}, &ReachedForward::forward_s);
    whole_is_best = whole_is_best && best->reach == 1;
  }
  AddRow(table, Choice{.name = "to cut all between is always best",
                       .paper = "no",
                       .ours = whole_is_best ? "yes" : "no",
                       .ratio = {},
                       .why = {}});
  return OkStatus();
}

// ---- What a figure hangs on.

// One thing that is different.
struct Experiment {
  std::string name;
  StepChanges changes;
};

std::vector<Experiment> ExperimentsOn(const Machines& machines, double ratio) {
  constexpr double kSmsOfCollectives = 16;
  std::vector<Experiment> experiments = {
      {"nothing slows anything down", {.contention = false}},
      {"gradients are not summed", {.gradient_sums = false}},
      {"collectives hold 16 SMs", {.compute_slowdown = machines.sms / (machines.sms - kSmsOfCollectives)}},
      {"all-to-alls as long as in Figure 2", {.exchange_scale = kPaperRatio / ratio}},
      {StrCat("ranges of ", kPaperParts, " parts at most"), {.most_parts = kPaperParts}},
      {"no limits of groups and ranges", {.paper_limits = false}},
  };
  if (machines.nics > 1) {
    experiments.push_back({StrCat("sums use all ", machines.nics, " NICs"), {.sum_scale = 1.0 / machines.nics}});
  }
  if (machines.without_tf32 > 1) {
    experiments.push_back({"products in FP32, not TF32", {.product_scale = machines.without_tf32}});
  }
  return experiments;
}

// Adds a row to each table: the mean gain over the faster of RAF and Tutel, and the largest cut over RAF.
class HangsOn {
 public:
  HangsOn()
      : gains_(MakeTable("lancet",
                         "Lancet, what the gain over the faster of RAF and Tutel hangs on: mean of both models, "
                         "Switch gate, 16 A100 and 32 V100, one thing changed at a time")),
        cuts_(MakeTable("lancet",
                        "Lancet, what the largest cut of exposed communication over RAF hangs on: the same "
                        "steps and changes")) {}

  void Add(const Machines& machines, const std::string& what, const std::vector<double>& gains,
           const std::vector<double>& cuts, bool first = false) {
    const auto add = [&](v1::ReproducedTable& table, double paper, double ours) {
      AddRow(table, Figure{.name = StrCat(machines.name, ": ", what),
                           .unit = kShare,
                           .paper = first ? std::optional(paper) : std::nullopt,
                           .ours = ours,
                           .why = {},
                           .compared = false});
    };
    add(gains_, machines.mean_speedup[0] - 1, Mean(gains));
    if (!cuts.empty()) add(cuts_, machines.cut_over_raf, std::ranges::max(cuts));
  }

  void MoveTo(Tables& tables) {
    tables.push_back(std::move(gains_));
    tables.push_back(std::move(cuts_));
  }

 private:
  v1::ReproducedTable gains_, cuts_;
};

Status AddExperiments(const Setting& setting, const std::vector<Case>& unchanged, Tables& tables) {
  const double ratio = LargestRatio(setting);
  HangsOn hangs_on;
  for (const Machines& machines : kMachines) {
    const int gpus = machines.experiment_gpus;
    const auto each = [&](const std::vector<Case>& cases, const Measure& measure) {
      std::vector<double> values;
      for (const Case& one : cases) {
        if (one.of->machines != &machines || one.of->gpus != gpus || one.gate != 0) continue;
        values.push_back(measure(machines, one.step));
      }
      return values;
    };
    hangs_on.Add(machines, "as above", each(unchanged, GainOverFaster), each(unchanged, CutOverRaf), /*first=*/true);
    hangs_on.Add(machines, "over RAF, whatever Tutel is", each(unchanged, GainOverRaf), {});
    hangs_on.Add(machines, "Tutel hides what Figure 13 says", each(unchanged, GainOverPapersTutel), {});
    hangs_on.Add(machines, "the paper's own greedy and ranges", each(unchanged, PaperGainOverFaster),
                 each(unchanged, PaperCutOverRaf));
    const std::vector<Experiment> experiments = ExperimentsOn(machines, ratio);
    std::vector<Case> all;
    for (const Experiment& one : experiments) {
      std::ranges::move(ChangedCases(setting, machines, gpus, one.changes), std::back_inserter(all));
    }
    RETURN_IF_ERROR(CompareAll(all));
    const size_t models = all.size() / experiments.size();
    for (size_t i = 0; i < experiments.size(); ++i) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(i * models);
      const std::vector<Case> cases(first, first + static_cast<std::ptrdiff_t>(models));
      hangs_on.Add(machines, experiments[i].name, each(cases, GainOverFaster), each(cases, CutOverRaf));
    }
  }
  hangs_on.MoveTo(tables);
  return OkStatus();
}

// ---- What runs.

// A step as it was predicted and as it ran, under each schedule.
struct Run {
  const MeasuredModel* of = nullptr;
  struct Times {
    double raf_s = 0, tutel_s = 0, lancet_s = 0;
  } predicted, measured;
};

StatusOr<std::vector<Run>> RunSteps(const std::vector<Case>& cases, const ShowProgress& progress) {
  std::vector<Run> runs;
  for (const Machines& machines : kMachines) {
    std::vector<GraphPlanAnswer> steps;
    const size_t first = runs.size();
    for (const Case& one : cases) {
      if (one.of->machines != &machines || one.of->gpus != kRunGpus || one.gate != 0) continue;
      const ComparedStep& step = one.step;
      GraphPlanAnswer given = step.answer;
      given.lancet = agent::UnscheduledPlan(step.answer);
      steps.insert(steps.end(), {std::move(given), step.in_parts, step.answer});
      runs.push_back(
          {.of = one.of, .predicted = {step.raf.time_s, step.tutel.time_s, step.lancet.time_s}, .measured = {}});
    }
    ASSIGN_OR_RETURN(Testbed testbed, StartOn(machines, kRunGpus, progress));
    ASSIGN_OR_RETURN(const std::vector<double> times_s, testbed.StepTimesS(steps));
    for (size_t i = first; i < runs.size(); ++i) {
      const double* of_run = &times_s[3 * (i - first)];
      runs[i].measured = {of_run[0], of_run[1], of_run[2]};
    }
  }
  return runs;
}

std::vector<double> ErrorsOf(const std::vector<Run>& runs) {
  std::vector<double> errors;
  for (const Run& run : runs) {
    const auto add = [&](double Run::Times::*time_s) {
      errors.push_back(std::abs(run.predicted.*time_s / (run.measured.*time_s) - 1));
    };
    add(&Run::Times::raf_s), add(&Run::Times::tutel_s), add(&Run::Times::lancet_s);
  }
  return errors;
}

v1::ReproducedTable Runs(const std::vector<Run>& runs) {
  v1::ReproducedTable table =
      MakeTable("lancet",
                "Lancet, §7.2: steps as predicted and as they run on the simulated testbeds, 16 GPUs, Switch "
                "gate; the paper's error is of real machines, and not compared");
  for (const Run& run : runs) {
    const auto add = [&](const char* over, double Run::Times::*baseline) {
      for (const auto& [what, times] : {std::pair("predicted", run.predicted), std::pair("run", run.measured)}) {
        AddRow(table, Figure{.name = StrCat(run.of->machines->name, ", ", run.of->model->name, ": gain over ", over,
                                            ", ", what),
                             .unit = kShare,
                             .ours = times.*baseline / times.lancet_s - 1});
      }
    };
    add("RAF", &Run::Times::raf_s);
    add("Tutel", &Run::Times::tutel_s);
  }
  const std::vector<double> errors = ErrorsOf(runs);
  AddRow(table, Figure{.name = "error of an iteration's time, mean",
                       .unit = kShare,
                       .paper = kPaperError,
                       .ours = Mean(errors),
                       .why = {},
                       .compared = false});
  AddRow(table,
         Figure{.name = "error of an iteration's time, largest", .unit = kShare, .ours = std::ranges::max(errors)});
  return table;
}

v1::ReproducedTable Others(const Setting& setting, const std::vector<Case>& cases) {
  v1::ReproducedTable table = MakeTable("lancet", "Lancet, §2.2, §5.1 and §7.3");
  int most_parts = 1;
  double longest_s = 0;
  for (const Case& one : cases) {
    most_parts = std::max(most_parts, one.step.most_parts);
    longest_s = std::max(longest_s, one.step.planning_s);
  }
  AddRow(table, Figure{.name = "V100: all-to-alls over experts",
                       .paper = kPaperRatio,
                       .ours = LargestRatio(setting),
                       .why = kWhyRatio});
  AddRow(table, Figure{.name = "parts of a range, at most",
                       .unit = kCount,
                       .paper = kPaperParts,
                       .ours = most_parts,
                       .why = kWhyParts});
  AddRow(table, Figure{.name = kPlanningRow,
                       .unit = kSeconds,
                       .paper = kPaperPlanningS,
                       .ours = longest_s,
                       .why = {},
                       .compared = false});
  return table;
}

}  // namespace

StatusOr<Tables> ReproduceLancet(const ShowProgress& progress) {
  ASSIGN_OR_RETURN(const Setting setting, MeasureAll(progress));
  std::vector<Case> cases = CasesOf(setting);
  RETURN_IF_ERROR(CompareAll(cases));
  Tables tables = {Gains(cases, "the faster of RAF and Tutel", GainOverFaster, true),
                   Gains(cases, "RAF", GainOverRaf, false),
                   Gains(cases, "a Tutel that hides what Figure 13 says", GainOverPapersTutel, false), Cuts(cases)};
  RETURN_IF_ERROR(AddExperiments(setting, cases, tables));
  RETURN_IF_ERROR(AddAblation(setting, tables));
  RETURN_IF_ERROR(AddRanges(setting, tables));
  ASSIGN_OR_RETURN(const std::vector<Run> runs, RunSteps(cases, progress));
  tables.push_back(Runs(runs));
  tables.push_back(Others(setting, cases));
  return tables;
}

}  // namespace moeplan::cli
