#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/options.h"
#include "cli/reproduce/joint_steps.h"
#include "cli/reproduce/papers.h"
#include "cli/reproduce/rows.h"
#include "models/fit/statistics.h"
#include "models/text.h"
#include "models/workload/resolve_grid.h"
#include "planner/rules/choices.h"
#include "planner/search/plan_layer.h"

namespace moeplan::cli {
namespace {

constexpr const char* kTestbeds[] = {"parm-a",      "parm-b",   "monta",    "lancet-p4de",
                                     "lancet-p3dn", "h100-8x8", "pcie-box", "fat-tree-64"};
// The last is what a layer has of Lancet: a range of the forward pass. Its passes are compared on whole steps.
constexpr std::pair<std::string_view, const char*> kPapers[] = {
    {"parm", "Parm"}, {"monta", "MoNTA"}, {"schemoe", "ScheMoE"}, {planner::kCutRange, "a cut range"}};
constexpr int kTop = 8;  // Candidates that run, to know what choosing another than the first would have gained.

// One layer: what the joint search predicted of its choice, and how long that and the others took.
struct Outcome {
  bool plain = false;  // Neither tensor parallelism nor codecs, which two of the papers do not know.
  double predicted_s = 0, joint_s = 0, fastest_s = 0;
  std::map<std::string, double> papers_s;

  double Error() const { return std::abs(predicted_s - joint_s) / joint_s; }
  double Regret() const { return joint_s / fastest_s - 1; }
};

// The jobs of one layer: the first is the joint search's choice, the last are the papers'.
struct LayerJobs {
  PlanAnswer answer;
  std::vector<planner::PaperChoice> papers;
  size_t first = 0, end = 0;
};

StatusOr<std::vector<Outcome>> RunGrid(Testbed& testbed, const std::vector<Workload>& grid) {
  ASSIGN_OR_RETURN(const std::vector<Workload> resolved, ResolveGrid(grid, testbed.cluster()));
  ASSIGN_OR_RETURN(const Profile profile, testbed.Calibrate(agent::MeasurementsOf(resolved, testbed.cluster())));
  std::vector<Job> jobs;
  std::vector<LayerJobs> layers;
  for (const Workload& workload : resolved) {
    LayerJobs& layer = layers.emplace_back();
    StatusOr<PlanAnswer> answer = planner::PlanLayer(workload, profile, {.top = kTop, .rules = false});
    if (!answer.ok()) return answer.status().Within(workload.name);
    layer.answer = *std::move(answer);
    layer.papers = planner::ChoicesOfPapers(workload, profile);
    layer.first = jobs.size();
    for (const Plan& plan : layer.answer.candidates) jobs.push_back({.workload = workload, .plan = plan});
    for (const planner::PaperChoice& choice : layer.papers) {
      jobs.push_back({.workload = workload, .plan = {.knobs = choice.knobs}});
    }
    layer.end = jobs.size();
  }
  ASSIGN_OR_RETURN(const std::vector<double> times_s, testbed.TimesS(jobs));
  std::vector<Outcome> outcomes;
  for (const LayerJobs& layer : layers) {
    Outcome& outcome = outcomes.emplace_back();
    const Workload& workload = layer.answer.workload;
    outcome.plain = workload.layout.tensor_parallel == 1 && !workload.allow_lossy;
    outcome.predicted_s = layer.answer.candidates.front().predicted_time_s;
    outcome.joint_s = times_s[layer.first];
    outcome.fastest_s = *std::min_element(times_s.begin() + layer.first, times_s.begin() + layer.end);
    for (size_t i = 0; i < layer.papers.size(); ++i) {
      outcome.papers_s[layer.papers[i].paper] = times_s[layer.end - layer.papers.size() + i];
    }
  }
  return outcomes;
}

// How much longer the paper's choice takes than the joint search's, over the layers to which it applies.
std::vector<double> Gains(const std::vector<Outcome>& outcomes, const std::string& paper) {
  std::vector<double> gains;
  for (const Outcome& outcome : outcomes) {
    if (const auto found = outcome.papers_s.find(paper); found != outcome.papers_s.end()) {
      gains.push_back(found->second / outcome.joint_s);
    }
  }
  return gains;
}

// How much longer the best of the papers' choices takes than the joint search's.
std::vector<double> GainsOverBest(const std::vector<Outcome>& outcomes) {
  std::vector<double> ratios;
  for (const Outcome& outcome : outcomes) {
    const auto best = std::ranges::min_element(outcome.papers_s, {}, [](const auto& one) { return one.second; });
    if (best != outcome.papers_s.end()) ratios.push_back(best->second / outcome.joint_s);
  }
  return ratios;
}

template <typename Value>
std::vector<double> Each(const std::vector<Outcome>& outcomes, Value value) {
  std::vector<double> values;
  for (const Outcome& outcome : outcomes) values.push_back((outcome.*value)());
  return values;
}

void AddWins(v1::ReproducedTable& table, const std::string& name, const std::vector<Outcome>& outcomes) {
  for (const auto& [paper, title] : kPapers) {
    const std::vector<double> gains = Gains(outcomes, std::string(paper));
    if (gains.empty()) continue;
    const char* const whose = paper == planner::kCutRange ? "" : "'s choice";
    AddRow(table,
           Figure{.name = StrCat(name, ": over ", title, whose, ", mean of ", gains.size()), .ours = Mean(gains)});
  }
  const std::vector<double> over_best = GainsOverBest(outcomes);
  if (over_best.empty()) return;
  AddRow(table,
         Figure{.name = StrCat(name, ": over the best of them, mean of ", over_best.size()), .ours = Mean(over_best)});
  AddRow(table, Figure{.name = StrCat(name, ": over the best of them, least, less 1"),
                       .unit = kShare,
                       .ours = std::ranges::min(over_best) - 1});
}

void AddPromises(v1::ReproducedTable& table, const std::string& name, const std::vector<Outcome>& outcomes) {
  const std::vector<double> errors = Each(outcomes, &Outcome::Error), regrets = Each(outcomes, &Outcome::Regret);
  const auto row = [&](const char* what, double share) {
    AddRow(table, Figure{.name = StrCat(name, ": ", what), .unit = kShare, .ours = share});
  };
  row("prediction error, median", Median(errors));
  row("prediction error, 95th percentile", Quantile(errors, 0.95));
  row("regret, mean", Mean(regrets));
  row("regret, largest", std::ranges::max(regrets));
}

}  // namespace

StatusOr<Tables> ReproduceJoint(const ShowProgress& progress) {
  v1::ReproducedTable wins =
      MakeTable("joint", "How much faster the joint search's choice is than each paper's for one layer");
  v1::ReproducedTable promises =
      MakeTable("joint", "How well the joint search predicts its choice, and what another would have gained");
  std::vector<Outcome> all;
  for (const char* name : kTestbeds) {
    ASSIGN_OR_RETURN(const SimulatedCluster cluster, FindTestbed(name));
    ASSIGN_OR_RETURN(const std::vector<Workload> grid, FindTestbedGrid(name));
    ASSIGN_OR_RETURN(Testbed testbed, Testbed::Start(cluster, progress));
    ASSIGN_OR_RETURN(const std::vector<Outcome> outcomes, RunGrid(testbed, grid));
    AddWins(wins, name, outcomes);
    AddPromises(promises, name, outcomes);
    all.insert(all.end(), outcomes.begin(), outcomes.end());
  }
  AddWins(wins, "all", all);
  std::vector<Outcome> plain = all;
  std::erase_if(plain, [](const Outcome& outcome) { return !outcome.plain; });
  AddWins(wins, "all without tensor parallelism and codecs", plain);
  AddPromises(promises, "all", all);
  ASSIGN_OR_RETURN(v1::ReproducedTable steps, JointSteps());
  return Tables{std::move(wins), std::move(steps), std::move(promises)};
}

}  // namespace moeplan::cli
