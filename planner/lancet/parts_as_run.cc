#include "planner/lancet/parts_as_run.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "models/plan/step_tasks.h"
#include "models/text.h"
#include "planner/lancet/axes.h"
#include "planner/lancet/judge.h"
#include "planner/lancet/timed_graph.h"
#include "planner/wording.h"

namespace moeplan::planner {
namespace {

constexpr double kMostFactor = 8;
constexpr double kNear = 1e-6;                   // Two ends as near as that are one.
constexpr int kMostTries = 48, kLeastTries = 3;  // To find one factor.
constexpr double kMostLaunches = 2e7;            // Played in all, beside the least tries.

// Whether each instruction is an all-to-all or is only ever cut along with one, both ways.
std::vector<bool> ExchangeInParts(const TrainingGraph& graph) {
  std::set<std::string_view> layers;
  for (const Instruction& one : graph.instructions) {
    if (one.op == InstructionOp::kAllToAll && !one.layer.empty()) layers.insert(one.layer);
  }
  const auto exchanges = [&](const Instruction& one) {
    return one.op == InstructionOp::kAllToAll || layers.contains(one.layer);
  };
  const std::vector<int> forwards = ForwardsOf(graph);
  std::vector<bool> each;
  for (size_t i = 0; i < forwards.size(); ++i) {
    each.push_back(exchanges(graph.instructions[forwards[i] < 0 ? i : forwards[i]]));
  }
  return each;
}

double FactorOf(bool exchanges, double factor) { return exchanges ? factor : std::max(1.0, factor); }

// One part of `parts` takes `factor` times as long in the graph, where that may be.
void Multiply(TrainingGraph& graph, const std::vector<bool>& exchanges, int parts, double factor) {
  for (size_t i = 0; i < graph.instructions.size(); ++i) {
    Instruction& one = graph.instructions[i];
    if (MostPartsOf(one, graph.max_parts) < parts || !KnownPartS(one, parts)) continue;
    std::vector<double> part_s;
    for (int k = 1; k <= graph.max_parts; ++k) {
      const std::optional<double> known_s = KnownPartS(one, k);
      if (!known_s) break;
      part_s.push_back(*known_s * (k == parts ? FactorOf(exchanges[i], factor) : 1));
    }
    if (static_cast<int>(part_s.size()) >= parts) one.part_times_s = std::move(part_s);
  }
}

// Plays one graph with its parts slower or faster. All but the timed graph is borrowed.
class PartsPlayer {
 public:
  PartsPlayer(const TrainingGraph& graph, const std::vector<bool>& exchanges, TimedGraph timed, const Profile* profile)
      : graph_(graph), exchanges_(exchanges), alone_(timed), timed_(std::move(timed)), judge_(graph, timed_, profile) {}

  double WholeS() { return judge_.Play({})->played.total_s; }

  // The least factor that makes a difference to the range.
  double LeastFactor(const CutRange& range) const {
    const auto first = exchanges_.begin() + range.first, end = exchanges_.begin() + range.last + 1;
    return std::find(first, end, true) == end ? 1 : 1 / kMostFactor;
  }

  bool MayBeCut(const CutRange& range) const {
    RangeAxes axes(timed_);
    axes.Start(range.first);
    for (int i = range.first; i <= range.last; ++i) {
      if (!axes.Extend()) return false;
    }
    return true;
  }

  // When the step ends in which the range is cut and a part takes `factor` times what it takes alone, where that may
  // be; nothing where no launch order has that.
  std::optional<double> EndS(const CutRange& range, double factor) {
    for (int i = 0; i < timed_.size(); ++i) {
      std::vector<double>& part_s = timed_.instructions[i].part_s;
      if (static_cast<int>(part_s.size()) < range.parts || !KnownPartS(graph_.instructions[i], range.parts)) continue;
      part_s[range.parts - 1] = alone_.instructions[i].part_s[range.parts - 1] * FactorOf(exchanges_[i], factor);
    }
    const std::optional<JudgedChoice> judged = judge_.Play({.ranges = {range}, .places = {}});
    return judged ? std::optional(judged->played.total_s) : std::nullopt;
  }

 private:
  const TrainingGraph& graph_;
  const std::vector<bool>& exchanges_;
  const TimedGraph alone_;
  TimedGraph timed_;
  Judge judge_;  // Has the graph above.
};

// A step ends the later the more its parts take, so the factor lies between two that end before and after. Each try is
// where the straight line between these ends meets the measured end, or in the middle of them, in turns.
class FactorSearch {
 public:
  FactorSearch(PartsPlayer& player, const CutRange& range, double end_s, int tries)
      : player_(player), range_(range), end_s_(end_s), tries_(tries), low_(player.LeastFactor(range)) {}

  // Nothing where the range cannot be cut. A bound where not even that ends so early, or so late.
  StatusOr<std::optional<double>> Run(const std::stop_token& cancelled) {
    const std::optional<double> low_end_s = player_.EndS(range_, low_), high_end_s = player_.EndS(range_, high_);
    if (!low_end_s || !high_end_s) return std::optional<double>();
    low_end_s_ = *low_end_s, high_end_s_ = *high_end_s;
    if (low_end_s_ >= end_s_) return std::optional(low_);
    if (high_end_s_ <= end_s_) return std::optional(high_);
    double tried = low_;
    for (int i = 0; i < tries_; ++i) {
      if (cancelled.stop_requested()) return Cancelled("planning was cancelled before it was done");
      tried =
          i % 3 == 2 ? (low_ + high_) / 2 : low_ + (high_ - low_) * (end_s_ - low_end_s_) / (high_end_s_ - low_end_s_);
      const double ends_s = *player_.EndS(range_, tried);
      if (std::abs(ends_s - end_s_) <= kNear * end_s_) break;
      (ends_s < end_s_ ? low_ : high_) = tried;
      (ends_s < end_s_ ? low_end_s_ : high_end_s_) = ends_s;
    }
    return std::optional(tried);
  }

 private:
  PartsPlayer& player_;
  const CutRange range_;
  const double end_s_;
  const int tries_;
  double low_, high_ = kMostFactor;
  double low_end_s_ = 0, high_end_s_ = 0;
};

int PlaceOf(const TrainingGraph& graph, const std::string& id) {
  int place = 0;
  while (graph.instructions[place].id != id) ++place;
  return place;
}

int TriesOf(const TrainingGraph& graph) {
  const double launches = double(graph.instructions.size()) * graph.max_parts * double(graph.measured_steps.size());
  return static_cast<int>(std::clamp<double>(kMostLaunches / launches, kLeastTries, kMostTries));
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
  PriceNotes of_plan;  // The plan's own timing of the graph says them.
  ASSIGN_OR_RETURN(TimedGraph timed, TimeGraph(graph, profile, of_plan));
  const std::vector<bool> exchanges = ExchangeInParts(graph);
  PartsPlayer player(graph, exchanges, std::move(timed), profile);
  const double whole_s = player.WholeS();
  for (const MeasuredStep& step : graph.measured_steps) {
    if (step.parts == 1 || step.parts > graph.max_parts) continue;
    const CutRange range = {PlaceOf(graph, step.first), PlaceOf(graph, step.last), step.parts};
    const double ratio = step.time_s / graph.measured_steps.front().time_s;
    const std::string where = StrCat("measuredSteps of ", step.parts, " parts: ");
    std::optional<double> factor;
    if (player.MayBeCut(range)) {
      ASSIGN_OR_RETURN(factor, FactorSearch(player, range, whole_s * ratio, TriesOf(graph)).Run(cancelled));
    }
    if (!factor) {
      notes.remarks.insert(
          StrCat(where, step.first, " to ", step.last, " cannot be cut; parts take what partTimesS says"));
      continue;
    }
    as_run.factors[step.parts] = *factor;
    if (*factor > player.LeastFactor(range) && *factor < kMostFactor) continue;
    notes.remarks.insert(StrCat(where, ThreeDigits(ratio),
                                " of the step as it is, which its timeline does not reach with parts of ",
                                ThreeDigits(*factor), " times partTimesS"));
  }
  if (as_run.factors.empty()) return as_run;
  for (int parts = 2; parts <= graph.max_parts; ++parts) {
    if (cancelled.stop_requested()) return Cancelled("planning was cancelled before it was done");
    Multiply(as_run.graph, exchanges, parts, Between(as_run.factors, parts));
  }
  return as_run;
}

}  // namespace moeplan::planner
