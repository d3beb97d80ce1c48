#include "planner/lancet/schedule.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace moeplan::planner {
namespace {

constexpr double kNoGain = 1e-12;       // Of two times; less is rounding.
constexpr size_t kMostRefined = 1024;   // Ranges, counted for each k, up to which all choices of them are compared.
constexpr size_t kMostBorders = 32;     // Of groups; beyond, the search would end without an answer.
constexpr double kMostJoint = 1024;     // Places of all weight gradients up to which they are tried with each choice.
constexpr double kMostTakingOut = 5e5;  // Launches.
constexpr double kLaunchesOfSort = 16;  // What ordering an instruction costs, in launches played.

std::vector<GradientPlace> PlacesOf(const OverlapProblem& problem, const OverlapChoice& choice) {
  std::vector<GradientPlace> places;
  for (size_t i = 0; i < choice.size(); ++i) {
    if (choice[i] != kUnassigned) places.push_back({problem.gradients[i], problem.exchanges[choice[i]]});
  }
  return places;
}

class Chooser {
 public:
  Chooser(const TimedGraph& graph, const LancetBudget& budget, std::stop_token cancelled)
      : graph_(graph), budget_(budget), cancelled_(std::move(cancelled)) {}

  LancetSchedule Run() {
    best_.time_s = std::numeric_limits<double>::infinity();
    Try({}, {});
    best_.unscheduled_s = best_.time_s;
    const CutSearchOutcome cuts = ChooseRanges(graph_, budget_.range_launches, cancelled_);
    Try(cuts.ranges, {});
    PlaceGradients();
    RefineRanges();
    RefinePlaces();
    best_.all_ranges = cuts.all_ranges;
    return std::move(best_);
  }

 private:
  bool Stopped() const { return cancelled_.stop_requested(); }
  double EvaluationLaunches() const { return kLaunchesOfSort * graph_.size(); }

  // Keeps the choice if it ends earlier. Whether it does, up to rounding: `ties` counts as earlier, too.
  bool Try(const Cuts& ranges, const std::vector<GradientPlace>& places, bool ties = false) {
    std::optional<std::vector<PartLaunch>> order = LaunchOrder(graph_, ranges, places);
    if (!order) return false;
    const double time_s = EndS(graph_, *order);
    if (time_s > best_.time_s || (!ties && time_s >= best_.time_s * (1 - kNoGain))) return false;
    best_.ranges = ranges;
    best_.places = places;
    best_.order = *std::move(order);
    best_.time_s = time_s;
    return true;
  }

  // ---- Ranges.

  // All choices of ranges, along the given order: at each instruction it goes on as it is or with a range. Left out is
  // what cannot end earlier than the best, since each stream still has to run the rest of its instructions. Each choice
  // is tried with all places of weight gradients, where these are few.
  void RefineRanges() {
    size_t borders = 0;
    for (const std::vector<int>& run : GroupBorders(graph_)) borders += run.size();
    if (borders > kMostBorders) return;
    candidates_ = AllRanges(graph_, kMostRefined, cancelled_);
    if (candidates_.empty()) return;
    end_ = candidates_.back().first;
    for (const CutRange& range : candidates_) end_ = std::max(end_, range.last);
    const auto backward = [](const TimedInstruction& one) { return one.phase == Pass::kBackward; };
    const auto first_backward = std::ranges::find_if(graph_.instructions, backward);
    moving_ = static_cast<int>(first_backward - graph_.instructions.begin());
    rest_.assign(graph_.size() + 1, {});
    for (int i = graph_.size(); i-- > 0;) {
      const TimedInstruction& one = graph_.instructions[i];
      double least_s = one.whole_s();
      for (size_t k = 2; k <= one.part_s.size(); ++k) least_s = std::min(least_s, one.part_s[k - 1] * double(k));
      rest_[i] = rest_[i + 1];
      rest_[i][one.stream] += least_s;
    }
    left_ = budget_.refined_launches;
    StepTimeline timeline(graph_);
    Go(0, timeline);
  }

  void Go(int i, StepTimeline& timeline) {
    if (left_ <= 0 || Stopped()) return;
    const StepTimeline::Streams here = timeline.streams();
    double floor_s = 0;
    for (int stream = 0; stream < kStreamKinds; ++stream) {
      floor_s = std::max(floor_s, (here.free_s[stream] + rest_[i].free_s[stream]) * (1 - kNoGain));
    }
    // Beyond, weight gradients may leave their places, and what was played so far is no bound.
    if (i <= moving_ && floor_s >= best_.time_s) return;
    if (i > end_) {
      TryChosen();
      return;
    }
    auto range = std::ranges::lower_bound(candidates_, i, {}, &CutRange::first);
    for (; range != candidates_.end() && range->first == i; ++range) {
      timeline.Rewind(here);
      launches_.clear();
      AppendRange(graph_, *range, launches_);
      for (const PartLaunch& launch : launches_) timeline.Run(launch);
      left_ -= static_cast<double>(launches_.size());
      chosen_.push_back(*range);
      Go(range->last + 1, timeline);
      chosen_.pop_back();
    }
    timeline.Rewind(here);
    timeline.Run({.instruction = i});
    left_ -= 1;
    Go(i + 1, timeline);
  }

  void TryChosen() {
    if (PlaceChoices() > kMostJoint) {
      left_ -= EvaluationLaunches();
      Try(chosen_, best_.places);
      return;
    }
    OverlapChoice choice(best_.problem.gradients.size(), kUnassigned);
    TryAllPlaces(0, choice, chosen_);
  }

  // ---- Weight gradients.

  double PlaceChoices() const {
    double choices = 1;
    for (const std::vector<int>& fits : best_.problem.fits) choices *= static_cast<double>(fits.size() + 1);
    return choices;
  }

  void PlaceGradients() {
    if (Stopped()) return;
    best_.problem = LabelWeightGradients(graph_, cancelled_);
    const OverlapProblem& problem = best_.problem;
    const OverlapChoice greedy = BestFitGreedy(problem, cancelled_);
    best_.greedy_s = OverlapS(problem, greedy);
    best_.overlap = ImproveOverlap(problem, greedy, budget_.overlap_nodes, cancelled_);
    if (problem.gradients.empty()) return;
    // Of what ends at the same time, that which covers more: it has more to give where times were misjudged.
    Try(best_.ranges, PlacesOf(problem, best_.overlap.choice), /*ties=*/true);
    Try(best_.ranges, PlacesOf(problem, greedy));
  }

  void RefinePlaces() {
    left_ = budget_.refined_launches;
    if (PlaceChoices() * EvaluationLaunches() <= left_) {
      OverlapChoice choice(best_.problem.gradients.size(), kUnassigned);
      const Cuts ranges = best_.ranges;
      TryAllPlaces(0, choice, ranges);
    } else {
      TakeOutUseless();
    }
  }

  void TryAllPlaces(size_t i, OverlapChoice& choice, const Cuts& ranges) {
    if (left_ <= 0 || Stopped()) return;
    if (i == choice.size()) {
      left_ -= EvaluationLaunches();
      Try(ranges, PlacesOf(best_.problem, choice));
      return;
    }
    TryAllPlaces(i + 1, choice, ranges);
    for (const int place : best_.problem.fits[i]) {
      choice[i] = place;
      TryAllPlaces(i + 1, choice, ranges);
    }
    choice[i] = kUnassigned;
  }

  // One by one, where it ends earlier without.
  void TakeOutUseless() {
    left_ = std::min(left_, kMostTakingOut);
    for (size_t i = 0; i < best_.places.size() && left_ > 0 && !Stopped(); left_ -= EvaluationLaunches()) {
      std::vector<GradientPlace> fewer = best_.places;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      const Cuts ranges = best_.ranges;
      if (!Try(ranges, fewer)) ++i;
    }
  }

  const TimedGraph& graph_;
  const LancetBudget budget_;
  const std::stop_token cancelled_;
  LancetSchedule best_;

  std::vector<CutRange> candidates_;         // By first.
  std::vector<StepTimeline::Streams> rest_;  // What each stream has still to run, at least.
  std::vector<PartLaunch> launches_;
  Cuts chosen_;
  int end_ = 0;      // The last instruction of any range.
  int moving_ = 0;   // The first backward instruction.
  double left_ = 0;  // Launches.
};

}  // namespace

LancetSchedule ChooseSchedule(const TimedGraph& graph, const LancetBudget& budget, std::stop_token cancelled) {
  return Chooser(graph, budget, std::move(cancelled)).Run();
}

}  // namespace moeplan::planner
