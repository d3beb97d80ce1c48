#include "cli/reproduce/steps/reproduce_steps.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/reproduce/steps/dispatchers.h"
#include "cli/reproduce/steps/figures.h"
#include "cli/reproduce/steps/measured_step.h"
#include "cli/reproduce/steps/published.h"
#include "cli/reproduce/steps/simumax.h"
#include "cli/reproduce/steps/vtrain.h"
#include "models/fit/statistics.h"
#include "models/measurement/cost_key.h"
#include "models/text.h"
#include "planner/layout/price_layout.h"
#include "proto/convert/step.h"

namespace moeplan::cli {
namespace {

// The files of steps, and who reads them.
struct Source {
  const char* begin;  // Its file, or how names of its files begin and end.
  const char* end;
  StatusOr<std::vector<MeasuredStep>> (*read)(const DataFolder& folder, Constants& constants);
};
constexpr Source kSources[] = {
    {kSimumaxSteps, "", SimumaxSteps},
    {kPublishedJobs, "", PublishedSteps},
    {kDispatcherRuns, "", DispatcherSteps},
    {"vtrain_", ".csv", VtrainSteps},
};

// Null: all of them. Else those that begin as it names.
using Readers = std::set<std::string>;

StatusOr<std::vector<MeasuredStep>> ReadSteps(const DataFolder& folder, Constants& constants, const Readers* readers) {
  std::vector<MeasuredStep> steps;
  bool found = false;
  std::string names;
  for (const Source& source : kSources) {
    names += StrCat(names.empty() ? "" : ", ", source.begin, *source.end == '\0' ? "" : "*", source.end);
    const bool exact = *source.end == '\0';
    if (exact ? !folder.Has(source.begin) : folder.Names(source.begin, source.end).empty()) continue;
    found = true;
    if (readers != nullptr && !readers->contains(source.begin)) continue;
    constants.SetReader(source.begin);
    ASSIGN_OR_RETURN(std::vector<MeasuredStep> more, source.read(folder, constants));
    std::ranges::move(more, std::back_inserter(steps));
  }
  if (!found) return NotFound(StrCat("--data: found none of ", names, " in the folder, expected one of them"));
  return steps;
}

// The rules of every step that is priced from shapes that others measured.
SurfaceRules SurfaceRulesOf(Constants& constants) {
  constants.SetReader(kSimumaxSteps);
  const std::string source = "docs/decisions/0028, of kernels timed alone, 2026-11-24";
  SurfaceRules rules;
  rules.neighbours = static_cast<int>(constants.Use("shapes that one not measured is priced from", rules.neighbours,
                                                    {.source = source, .whole = true}));
  rules.exponent = constants.Use("exponent of the distance between shapes", rules.exponent, {.source = source});
  rules.long_product_s =
      constants.Use("seconds from which a product shows the sustained rate", rules.long_product_s, {.source = source});
  return rules;
}

// Steps on named hardware price dispatchers, which nobody measured there, by these.
planner::DispatchFigures DispatchFiguresOf(Constants& constants) {
  const std::string source = "docs/decisions/0032, of dispatchers timed alone by others, 2026";
  planner::DispatchFigures figures;
  for (const char* reader : {kPublishedJobs, kDispatcherRuns}) {
    constants.SetReader(reader);
    figures = {};
    const auto use = [&](const char* name, double& value) { value = constants.Use(name, value, {.source = source}); };
    use("DeepEP over an all-to-all inside a node", figures.deepep_inside.over_all_to_all);
    use("HybridEP over an all-to-all inside a node", figures.hybridep_inside.over_all_to_all);
    use("DeepEP over an all-to-all across nodes", figures.deepep_across.over_all_to_all);
    use("HybridEP over an all-to-all across nodes", figures.hybridep_across.over_all_to_all);
    use("DeepEP with UCCL over an all-to-all across nodes", figures.uccl_across.over_all_to_all);
    use("processors that DeepEP takes", figures.deepep_processors);
    use("processors that HybridEP takes", figures.hybridep_processors);
    use("processors that NCCL takes", figures.nccl_processors);
  }
  return figures;
}

// The nearest other measured row of the same model on the same machine.
const MeasuredStep* NearestOther(const std::vector<MeasuredStep>& steps, const MeasuredStep& step) {
  const MeasuredStep* nearest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const MeasuredStep& other : steps) {
    if (&other == &step || other.model != step.model || other.system != step.system || !other.measured_s ||
        other.place.size() != step.place.size()) {
      continue;
    }
    double distance = 0;
    for (size_t i = 0; i < step.place.size(); ++i) distance += std::abs(step.place[i] - other.place[i]);
    if (distance < least) least = distance, nearest = &other;
  }
  return nearest;
}

void AddReason(const std::string& reason, v1::ReproducedStep& row) {
  row.set_reason(StrCat(row.reason(), row.reason().empty() ? "" : "; ", reason));
}

void PredictStep(const MeasuredStep& step, const planner::PriceRules& rules, v1::ReproducedStep& row) {
  if (!step.asks) return;
  const StatusOr<StepAnswer> answer = planner::PriceLayout(*step.asks, *step.profile, {}, rules);
  if (!answer.ok()) {
    row.set_reason(answer.status().message());
    return;
  }
  if (!std::isfinite(answer->low_s) || !std::isfinite(answer->high_s)) {
    row.set_reason("the interval of some cost has no end");
    return;
  }
  row.set_predicted_s(answer->layout.step_time_s);
  row.set_low_s(answer->low_s);
  row.set_high_s(answer->high_s);
  *row.mutable_parts() = ToProto(*answer, step.asks->request.gpus).parts();
  if (step.measured_memory_bytes) row.set_predicted_memory_bytes(answer->layout.memory.total_bytes());
  if (answer->missing_bytes > 0) {
    AddReason(StrCat("called unfit: a GPU lacks ", BriefNumber(answer->missing_bytes), " bytes"), row);
  }
}

void Compare(const std::vector<MeasuredStep>& steps, const MeasuredStep& step, v1::ReproducedStep& row) {
  row.set_set(step.set);
  row.set_case_(step.name);
  row.set_reason(step.reason);
  if (step.measured_s) row.set_measured_s(*step.measured_s);
  if (step.measured_memory_bytes) row.set_measured_memory_bytes(*step.measured_memory_bytes);
  if (step.peer_s) row.set_peer_s(*step.peer_s);
  const MeasuredStep* nearest = NearestOther(steps, step);
  if (nearest != nullptr && nearest->tokens_per_gpu > 0) {
    row.set_trivial_s(*nearest->measured_s * step.tokens_per_gpu / nearest->tokens_per_gpu);
  }
}

// Whether the row's speed may say how fast others are: that of LoRA, say, is another matter.
bool IsJudged(const MeasuredStep& step) { return !step.set.ends_with("-other"); }

// Whether software does to both what it does to one: products and attention, or exchanges and experts, too. Sets that
// are not judged hold both kinds.
bool IsOfOneKind(const MeasuredStep& one, const MeasuredStep& other) { return !IsJudged(one) || one.set == other.set; }

// The median of measured / predicted over the other rows of its kind that are alike in the first `alike` of what makes
// a release. Absent: there are none.
std::optional<double> FactorOf(const std::vector<MeasuredStep>& steps, const std::vector<double>& ratios, size_t self,
                               size_t alike) {
  const MeasuredStep& scaled = steps[self];
  std::vector<double> others;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i == self || steps[i].release.size() != scaled.release.size() || ratios[i] <= 0) continue;
    if (IsJudged(steps[i]) && IsOfOneKind(scaled, steps[i]) &&
        std::equal(steps[i].release.begin(), steps[i].release.begin() + static_cast<long>(alike),
                   scaled.release.begin())) {
      others.push_back(ratios[i]);
    }
  }
  return others.empty() ? std::nullopt : std::optional(Median(others));
}

// Scales each step by what software of the same release does to the other rows.
void ScaleByReleases(const std::vector<MeasuredStep>& steps, v1::ReproducedSteps& reproduced) {
  std::vector<double> ratios;
  for (const v1::ReproducedStep& row : reproduced.rows()) {
    ratios.push_back(row.has_predicted_s() && row.has_measured_s() ? row.measured_s() / row.predicted_s() : 0);
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    v1::ReproducedStep& row = *reproduced.mutable_rows(static_cast<int>(i));
    if (steps[i].release.empty() || !row.has_predicted_s()) continue;
    constexpr const char* kAlike[] = {"", "system", "system and precision", "system, precision and release"};
    std::optional<double> factor;
    size_t alike = steps[i].release.size();
    for (; alike > 0 && !factor; --alike) factor = FactorOf(steps, ratios, i, alike);
    row.set_unscaled_s(row.predicted_s());
    if (!factor) {
      AddReason("factor 1: no other row of its kind and system", row);
      continue;
    }
    AddReason(StrCat("factor ", BriefNumber(*factor), " of other rows of the same kind, ", kAlike[alike + 1]), row);
    row.set_predicted_s(*factor * row.predicted_s());
    row.set_low_s(*factor * row.low_s());
    row.set_high_s(*factor * row.high_s());
  }
}

void AddErrors(v1::ReproducedSteps& reproduced) {
  for (v1::ReproducedStep& row : *reproduced.mutable_rows()) {
    if (row.has_predicted_s() && row.has_measured_s()) row.set_error(row.predicted_s() / row.measured_s() - 1);
  }
}

void AddSets(const std::vector<MeasuredStep>& steps, v1::ReproducedSteps& reproduced) {
  std::map<std::string, std::vector<JudgedStep>> sets;
  for (size_t i = 0; i < steps.size(); ++i) {
    sets[steps[i].set].push_back({&reproduced.rows(static_cast<int>(i)), steps[i].question, steps[i].tokens_per_gpu});
  }
  for (const auto& [set, judged] : sets) *reproduced.add_sets() = FiguresOf(set, judged);
}

// Two steps of one question, whose ratio is predicted as that of two layouts (planner::CompareLayouts).
struct ComparedPair {
  double measured = 1;  // The other's over the one's.
  StepRatio predicted;
};

std::vector<ComparedPair> PairsOf(const std::vector<const MeasuredStep*>& alike, const planner::PriceRules& rules) {
  constexpr size_t kMostPairs = 256;
  std::vector<ComparedPair> pairs;
  for (size_t i = 0; i < alike.size(); ++i) {
    for (size_t j = i + 1; j < alike.size() && pairs.size() < kMostPairs; ++j) {
      const MeasuredStep &one = *alike[i], &other = *alike[j];
      const auto ratio = planner::CompareLayouts(*one.asks, *other.asks, *one.profile, {}, rules);
      if (ratio.ok()) pairs.push_back({*other.measured_s / *one.measured_s, *ratio});
    }
  }
  return pairs;
}

// The same costs price both steps of a pair. What a factor scales is left out: it is another for each release.
void AddPairs(const std::vector<MeasuredStep>& steps, const planner::PriceRules& rules,
              v1::ReproducedSteps& reproduced) {
  std::map<std::string, std::map<std::pair<std::string, const Profile*>, std::vector<const MeasuredStep*>>> sets;
  for (const MeasuredStep& step : steps) {
    if (!step.asks || !step.measured_s || !step.release.empty()) continue;
    sets[step.set][{step.question, step.profile.get()}].push_back(&step);
  }
  for (v1::ReproducedStepSet& set : *reproduced.mutable_sets()) {
    std::vector<double> half_widths;
    double covered = 0;
    for (const auto& [question, alike] : sets[set.set()]) {
      for (const auto& [measured, predicted] : PairsOf(alike, rules)) {
        covered += measured >= predicted.low && measured <= predicted.high ? 1 : 0;
        half_widths.push_back((predicted.high - predicted.low) / (2 * predicted.ratio));
      }
    }
    set.set_pairs(static_cast<int>(half_widths.size()));
    if (half_widths.empty()) continue;
    set.set_pair_coverage(covered / static_cast<double>(half_widths.size()));
    set.set_pair_half_width_median(Median(half_widths));
  }
}

StatusOr<v1::ReproducedSteps> ReproduceFrom(const DataFolder& folder, Constants& constants, const Readers* readers) {
  ASSIGN_OR_RETURN(const std::vector<MeasuredStep> steps, ReadSteps(folder, constants, readers));
  const planner::PriceRules rules = {.surface = SurfaceRulesOf(constants), .dispatch = DispatchFiguresOf(constants)};
  v1::ReproducedSteps reproduced;
  for (const MeasuredStep& step : steps) {
    v1::ReproducedStep& row = *reproduced.add_rows();
    Compare(steps, step, row);
    PredictStep(step, rules, row);
  }
  ScaleByReleases(steps, reproduced);
  AddErrors(reproduced);
  AddSets(steps, reproduced);
  if (readers == nullptr) AddPairs(steps, rules, reproduced);
  return reproduced;
}

}  // namespace

StatusOr<v1::ReproducedSteps> ReproduceSteps(const DataFolder& folder, Constants& constants) {
  return ReproduceFrom(folder, constants, /*readers=*/nullptr);
}

Status Perturb(const DataFolder& folder, const Constants& constants, v1::ReproducedSteps& reproduced) {
  for (const auto& [name, used] : constants.used()) {
    v1::PerturbedConstant& perturbed = *reproduced.add_perturbed();
    perturbed.set_constant(name);
    perturbed.set_source(used.constant.source);
    perturbed.set_outside_steps(used.constant.outside_steps);
    for (const Constants::Change change : {Constants::Change::kLess, Constants::Change::kMore}) {
      Constants changed(name, change);
      ASSIGN_OR_RETURN(const v1::ReproducedSteps other, ReproduceFrom(folder, changed, &used.readers));
      for (const v1::ReproducedStepSet& set : reproduced.sets()) {
        const auto same = std::ranges::find_if(other.sets(), [&](const auto& one) { return one.set() == set.set(); });
        if (same == other.sets().end()) continue;
        const double moves = std::abs(same->mean_absolute_error() - set.mean_absolute_error());
        if (moves <= perturbed.moves()) continue;
        perturbed.set_moves(moves);
        perturbed.set_set(set.set());
      }
    }
  }
  std::ranges::sort(*reproduced.mutable_perturbed(), [](const auto& a, const auto& b) {
    return std::tuple(-a.moves(), a.constant()) < std::tuple(-b.moves(), b.constant());
  });
  return OkStatus();
}

}  // namespace moeplan::cli
