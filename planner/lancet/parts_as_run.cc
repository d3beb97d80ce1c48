#include "planner/lancet/parts_as_run.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "models/plan/step_tasks.h"
#include "models/text.h"
#include "planner/lancet/axes.h"
#include "planner/lancet/judge.h"
#include "planner/lancet/timed_graph.h"

namespace moeplan::planner {
namespace {

constexpr double kMostFactor = 8;
// Of the logarithm of a factor: 2.5e-7 of it is left of small graphs, and 1.6 % of the largest.
constexpr int kMostHalvings = 24, kLeastHalvings = 8;
constexpr double kMostLaunches = 2e7;  // Played in all.

// The graph, in which one part of `parts` takes `factor` times as long.
void Multiply(TrainingGraph& graph, int parts, double factor) {
  for (Instruction& one : graph.instructions) {
    if (MostPartsOf(one, graph.max_parts) < parts || !KnownPartS(one, parts)) continue;
    std::vector<double> part_s;
    for (int k = 1; k <= graph.max_parts; ++k) {
      const std::optional<double> known_s = KnownPartS(one, k);
      if (!known_s) break;
      part_s.push_back(*known_s * (k == parts ? factor : 1));
    }
    if (static_cast<int>(part_s.size()) >= parts) one.part_times_s = std::move(part_s);
  }
}

// When the step ends, nothing cut or one range; nothing where that cannot be cut.
StatusOr<std::optional<double>> EndS(const TrainingGraph& graph, const Profile* profile,
                                     const std::optional<CutRange>& range) {
  PriceNotes notes;  // The plan's own timing of the graph says them.
  ASSIGN_OR_RETURN(const TimedGraph timed, TimeGraph(graph, profile, notes));
  StepChoice choice;
  if (range) {
    RangeAxes axes(timed);
    axes.Start(range->first);
    for (int i = range->first; i <= range->last; ++i) {
      if (!axes.Extend()) return std::optional<double>();
    }
    choice.ranges.push_back(*range);
  }
  const std::optional<JudgedChoice> judged = Judge(graph, timed, profile).Play(choice);
  return judged ? std::optional(judged->played.total_s) : std::nullopt;
}

int PlaceOf(const TrainingGraph& graph, const std::string& id) {
  int place = 0;
  while (graph.instructions[place].id != id) ++place;
  return place;
}

// The factor at which the range ends then; nothing where it cannot be cut.
StatusOr<std::optional<double>> FactorOf(const TrainingGraph& graph, const Profile* profile, const CutRange& range,
                                         double end_s, const std::stop_token& cancelled) {
  const double launches = double(graph.instructions.size()) * range.parts * double(graph.measured_steps.size());
  const double halvings = std::clamp<double>(kMostLaunches / launches, kLeastHalvings, kMostHalvings);
  double low = 1 / kMostFactor, high = kMostFactor;
  for (int i = 0; i < static_cast<int>(halvings); ++i) {
    if (cancelled.stop_requested()) return Cancelled("planning was cancelled before it was done");
    const double tried = std::sqrt(low * high);
    TrainingGraph multiplied = graph;
    Multiply(multiplied, range.parts, tried);
    ASSIGN_OR_RETURN(const std::optional<double> ends_s, EndS(multiplied, profile, range));
    if (!ends_s) return std::optional<double>();
    (*ends_s < end_s ? low : high) = tried;
  }
  return std::optional(std::sqrt(low * high));
}

double Between(const std::map<int, double>& measured, int parts) {
  const auto more = measured.lower_bound(parts);
  if (more == measured.end()) return std::prev(more)->second;
  if (more->first == parts || more == measured.begin()) return more->second;
  const auto fewer = std::prev(more);
  const double share = std::log(double(parts) / fewer->first) / std::log(double(more->first) / fewer->first);
  return fewer->second * std::pow(more->second / fewer->second, share);
}

}  // namespace

StatusOr<PartsAsRun> WithPartsAsRun(const TrainingGraph& graph, const Profile* profile, PriceNotes& notes,
                                    const std::stop_token& cancelled) {
  PartsAsRun as_run = {.graph = graph, .factors = {}};
  as_run.graph.measured_steps.clear();
  if (graph.measured_steps.size() < 2) return as_run;
  ASSIGN_OR_RETURN(const std::optional<double> whole_s, EndS(graph, profile, {}));
  std::map<int, double> measured;
  for (const MeasuredStep& step : graph.measured_steps) {
    if (step.parts == 1 || step.parts > graph.max_parts) continue;
    const CutRange range = {PlaceOf(graph, step.first), PlaceOf(graph, step.last), step.parts};
    const double end_s = *whole_s * step.time_s / graph.measured_steps.front().time_s;
    ASSIGN_OR_RETURN(const std::optional<double> factor, FactorOf(graph, profile, range, end_s, cancelled));
    if (factor) {
      measured[step.parts] = *factor;
    } else {
      notes.remarks.insert(StrCat("measuredSteps of ", step.parts, " parts: ", step.first, " to ", step.last,
                                  " cannot be cut; parts take what partTimesS says"));
    }
  }
  if (measured.empty()) return as_run;
  for (int parts = 2; parts <= graph.max_parts; ++parts) {
    as_run.factors[parts] = Between(measured, parts);
    Multiply(as_run.graph, parts, as_run.factors[parts]);
  }
  return as_run;
}

}  // namespace moeplan::planner
