#include "planner/lancet/schedule.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "planner/ties.h"

namespace moeplan::planner {
namespace {

constexpr size_t kMostRefined = 1024;   // Ranges, counted for each k, up to which all choices of them are compared.
constexpr size_t kMostBorders = 32;     // Of groups; beyond, the search would end without an answer.
constexpr double kMostJoint = 1024;     // Places of all weight gradients up to which they are tried with each choice.
constexpr double kMostTakingOut = 5e5;  // Launches.
constexpr double kLaunchesOfSort = 16;  // What ordering an instruction costs, in launches played.

using Places = std::vector<GradientPlace>;

class Chooser {
 public:
  Chooser(const TimedGraph& graph, const LancetOptions& options, std::stop_token cancelled)
      : graph_(graph),
        passes_(options.passes),
        budget_(options.budget),
        cancelled_(std::move(cancelled)),
        given_{.time_s = *EndOf({}, {})} {}

  // What each pass finds alone is offered to both together, which so end no later.
  LancetSchedule Run() {
    const std::vector<Cuts> uncut(1);
    const std::vector<Places> unmoved(1);
    std::vector<Cuts> cuts = uncut;
    std::vector<Places> places = unmoved;
    if (passes_.partition) OfferRanges(cuts);
    if (passes_.weight_gradients) OfferPlaces(places);
    const bool moves = !schedule_.problem.gradients.empty();
    if (passes_.partition && moves) {
      cuts.push_back(Search({.weight_gradients = false}, cuts, unmoved).ranges);
      places.push_back(Search({.partition = false}, uncut, places).places);
    }
    return Finished(Search({.weight_gradients = moves, .partition = passes_.partition}, cuts, places));
  }

 private:
  bool Stopped() const { return cancelled_.stop_requested(); }
  // A pass alone gets as much beside the other as when the other is switched off, so that it finds the same.
  double RefinedLaunches() const { return budget_.refined_launches * (cuts_ && moves_ ? 0.5 : 0.25); }
  double EvaluationLaunches() const { return kLaunchesOfSort * graph_.size(); }

  // ---- What is compared.

  // Offers what the passes choose, the paper's first: at the same end its ranges are shorter.
  void OfferRanges(std::vector<Cuts>& cuts) {
    const auto offer = [&](const TimedGraph& graph) {
      CutSearchOutcome outcome = ChooseRanges(graph, budget_.range_launches, cancelled_);
      schedule_.all_ranges = schedule_.all_ranges && outcome.all_ranges;
      cuts.push_back(std::move(outcome.ranges));
    };
    if (graph_.group_s == 0 || graph_.max_range_s == 0) offer(WithLimitsOfPaper(graph_));
    offer(graph_);
  }

  void OfferPlaces(std::vector<Places>& places) {
    if (Stopped()) return;
    schedule_.problem = LabelWeightGradients(graph_, cancelled_);
    const OverlapProblem& problem = schedule_.problem;
    const OverlapChoice greedy = BestFitGreedy(problem, cancelled_);
    schedule_.greedy_s = OverlapS(problem, greedy);
    schedule_.overlap = ImproveOverlap(problem, greedy, budget_.overlap_nodes, cancelled_);
    places.push_back(PlacesOf(problem, schedule_.overlap.choice));
    places.push_back(PlacesOf(problem, greedy));
  }

  // The best of all pairs, and of what can be made of that by the passes given.
  const LancetCandidate& Search(const LancetPasses& passes, const std::vector<Cuts>& cuts,
                                const std::vector<Places>& places) {
    best_ = given_;
    cuts_ = passes.partition;
    moves_ = passes.weight_gradients;
    for (const Places& moved : places) {
      for (const Cuts& ranges : cuts) Consider(ranges, moved);
    }
    if (cuts_) RefineRanges();
    if (moves_) RefinePlaces();
    if (!Tried(best_.ranges, best_.places)) tried_.push_back(best_);
    return best_;
  }

  const LancetCandidate* Tried(const Cuts& ranges, const Places& places) const {
    const auto same = [&](const LancetCandidate& one) { return one.ranges == ranges && one.places == places; };
    const auto known = std::ranges::find_if(tried_, same);
    return known == tried_.end() ? nullptr : &*known;
  }

  // Of what ends at the same time, that which covers something: it has more to give where times were misjudged.
  void Consider(const Cuts& ranges, const Places& places) {
    if (Stopped()) return;
    if (!Tried(ranges, places)) {
      const std::optional<double> time_s = EndOf(ranges, places);
      if (!time_s) return;
      tried_.push_back({ranges, places, *time_s});
    }
    KeepIfEarlier(ranges, places, Tried(ranges, places)->time_s,
                  /*ties=*/best_.places.empty() && !places.empty());
  }

  // The end of the timeline of a choice; nothing where no order satisfies all places.
  std::optional<double> EndOf(const Cuts& ranges, const Places& places) const {
    const std::optional<std::vector<PartLaunch>> order = LaunchOrder(graph_, ranges, places);
    if (!order) return std::nullopt;
    return EndS(graph_, *order);
  }

  // Keeps the choice if it ends earlier. Whether it does, up to rounding.
  bool Try(const Cuts& ranges, const Places& places) {
    const std::optional<double> time_s = EndOf(ranges, places);
    return time_s && KeepIfEarlier(ranges, places, *time_s, /*ties=*/false);
  }

  bool KeepIfEarlier(const Cuts& ranges, const Places& places, double time_s, bool ties) {
    if (time_s > best_.time_s || (!ties && time_s >= best_.time_s * (1 - kNoGain))) return false;
    best_ = {ranges, places, time_s};
    return true;
  }

  LancetSchedule Finished(const LancetCandidate& best) {
    schedule_.ranges = best.ranges;
    schedule_.places = best.places;
    schedule_.order = *LaunchOrder(graph_, best.ranges, best.places);
    schedule_.time_s = best.time_s;
    schedule_.unscheduled_s = given_.time_s;
    schedule_.candidates = Candidates(best);
    return std::move(schedule_);
  }

  std::vector<LancetCandidate> Candidates(const LancetCandidate& best) {
    const auto same = [](const LancetCandidate& a, const LancetCandidate& b) {
      return a.ranges == b.ranges && a.places == b.places;
    };
    std::vector<LancetCandidate> candidates = {best};
    std::ranges::stable_sort(tried_, {}, &LancetCandidate::time_s);
    for (const LancetCandidate& one : tried_) {
      if (one.time_s >= given_.time_s * (1 - kNoGain) || candidates.size() + 1 == kMostCandidates) break;
      if (!same(one, best)) candidates.push_back(one);
    }
    if (!same(best, given_)) candidates.push_back(given_);
    return candidates;
  }

  // ---- Ranges.

  // All choices of ranges, along the given order: at each instruction it goes on as it is or with a range. Left out is
  // what cannot end earlier than the best, since each stream still has to run the rest of its instructions. Each choice
  // is tried with all places of weight gradients, where these are few.
  void RefineRanges() {
    size_t borders = 0;
    for (const std::vector<int>& run : GroupBorders(graph_)) borders += run.size();
    if (borders > kMostBorders) return;
    if (every_range_.empty()) every_range_ = AllRanges(graph_, kMostRefined, cancelled_);
    if (every_range_.empty()) return;
    end_ = every_range_.back().first;
    for (const CutRange& range : every_range_) end_ = std::max(end_, range.last);
    const auto backward = [](const TimedInstruction& one) { return one.phase == Pass::kBackward; };
    const auto first_backward = std::ranges::find_if(graph_.instructions, backward);
    moving_ = static_cast<int>(first_backward - graph_.instructions.begin());
    rest_.assign(graph_.size() + 1, {});
    for (int i = graph_.size(); i-- > 0;) {
      const TimedInstruction& one = graph_.instructions[i];
      double least_s = one.whole_s();
      for (int k = 2; k <= static_cast<int>(one.part_s.size()); ++k) {
        for (const CutAxis axis : {CutAxis::kSamples, CutAxis::kCapacity}) {
          least_s = std::min(least_s, one.PartS(k, axis) * k);
        }
      }
      rest_[i] = rest_[i + 1];
      rest_[i][one.stream] += least_s;
    }
    left_ = RefinedLaunches();
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
    auto range = std::ranges::lower_bound(every_range_, i, {}, &CutRange::first);
    for (; range != every_range_.end() && range->first == i; ++range) {
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
    if (!moves_ || PlaceChoices() > kMostJoint) {
      left_ -= EvaluationLaunches();
      Try(chosen_, best_.places);
      return;
    }
    OverlapChoice choice(schedule_.problem.gradients.size(), kUnassigned);
    TryAllPlaces(0, choice, chosen_);
  }

  // ---- Weight gradients.

  double PlaceChoices() const {
    double choices = 1;
    for (const std::vector<int>& fits : schedule_.problem.fits) choices *= static_cast<double>(fits.size() + 1);
    return choices;
  }

  void RefinePlaces() {
    left_ = RefinedLaunches();
    if (PlaceChoices() * EvaluationLaunches() <= left_) {
      OverlapChoice choice(schedule_.problem.gradients.size(), kUnassigned);
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
      Try(ranges, PlacesOf(schedule_.problem, choice));
      return;
    }
    TryAllPlaces(i + 1, choice, ranges);
    for (const int place : schedule_.problem.fits[i]) {
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
  const LancetPasses passes_;
  const LancetBudget budget_;
  const std::stop_token cancelled_;
  const LancetCandidate given_;         // The given order.
  std::vector<LancetCandidate> tried_;  // Each once; of a refinement its result alone.
  LancetCandidate best_;                // Of the search that runs.
  bool cuts_ = false, moves_ = false;   // Whether that search cuts ranges and moves weight gradients.
  LancetSchedule schedule_;

  std::vector<CutRange> every_range_;        // By first.
  std::vector<StepTimeline::Streams> rest_;  // What each stream has still to run, at least.
  std::vector<PartLaunch> launches_;
  Cuts chosen_;
  int end_ = 0;      // The last instruction of any range.
  int moving_ = 0;   // The first backward instruction.
  double left_ = 0;  // Launches.
};

}  // namespace

LancetSchedule ChooseSchedule(const TimedGraph& graph, const LancetOptions& options, std::stop_token cancelled) {
  return Chooser(graph, options, std::move(cancelled)).Run();
}

}  // namespace moeplan::planner
