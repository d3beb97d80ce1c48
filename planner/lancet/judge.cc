#include "planner/lancet/judge.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "models/check.h"
#include "planner/lancet/axes.h"
#include "planner/lancet/cut_ranges.h"
#include "planner/ties.h"

namespace moeplan::planner {
namespace {

constexpr double kMostPlayedTasks = 3e5;  // While ranges are cut otherwise: some tenths of a second.

}  // namespace

Judge::Judge(const TrainingGraph& graph, const TimedGraph& timed, const Profile* profile)
    : graph_(graph), timed_(timed), builder_(graph), pricer_(timed, profile), memory_(graph) {
  if (!graph.most_bytes) return;
  most_bytes_ = std::max(*graph.most_bytes, PeakBytes(*Play({})).value_or(0));
}

std::optional<JudgedChoice> Judge::Play(const StepChoice& choice) {
  const std::optional<std::vector<PartLaunch>> order = LaunchOrder(timed_, choice.ranges, choice.places);
  if (!order) return std::nullopt;
  JudgedChoice judged = {.choice = choice};
  RangeAxes axes(timed_);
  for (const CutRange& range : choice.ranges) {
    axes.Start(range.first);
    for (int i = range.first; i <= range.last; ++i) (void)axes.Extend();
    judged.ranges.push_back({range.first, range.last, range.parts, axes.axis()});
  }
  for (const PartLaunch& launch : *order) {
    judged.launches.push_back({launch.instruction, launch.part, launch.parts});
  }
  judged.tasks = builder_.Build(judged.ranges, judged.launches, /*with_kernels=*/false);
  judged.played = moeplan::Play(judged.tasks.graph, pricer_.Price(judged.tasks));
  played_tasks_ += static_cast<double>(judged.tasks.tasks.size());
  return judged;
}

JudgedChoice Judge::Choose(std::span<const StepChoice> choices, const std::stop_token& cancelled) {
  std::optional<JudgedChoice> best;
  for (const StepChoice& choice : choices) {
    if (best && cancelled.stop_requested()) break;
    std::optional<JudgedChoice> judged = Play(choice);
    if (judged && !HasRoom(*judged)) judged = WithLess(choice, cancelled);
    if (!judged) continue;
    if (!best || judged->played.total_s < best->played.total_s * (1 - kNoGain)) best = std::move(judged);
  }
  MOEPLAN_CHECK(best.has_value());
  // Without these the search has compared all that there is.
  const bool has_boundaries = builder_.has_boundaries() && pricer_.prices_boundaries();
  const bool has_ways_back =
      std::ranges::any_of(timed_.instructions, [](const TimedInstruction& one) { return one.forward >= 0; });
  if (pricer_.has_contention() || has_boundaries || has_ways_back) Refine(*best, cancelled);
  return *std::move(best);
}

bool Judge::HasRoom(const JudgedChoice& judged) const {
  return !graph_.most_bytes || PeakBytes(judged).value_or(0) <= most_bytes_;
}

std::optional<JudgedChoice> Judge::WithLess(StepChoice choice, const std::stop_token& cancelled) {
  std::optional<JudgedChoice> judged = WithFewerGradients(choice, cancelled);
  while (!judged && !choice.ranges.empty() && !cancelled.stop_requested()) {
    choice.ranges.pop_back();
    judged = WithFewerGradients(choice, cancelled);
  }
  return judged;
}

// Those stay for which the least has to wait.
std::optional<JudgedChoice> Judge::WithFewerGradients(const StepChoice& choice, const std::stop_token& cancelled) {
  std::optional<JudgedChoice> known;
  size_t fits = 0, too_many = choice.places.size() + 1;  // It may be that not even none fits.
  std::vector<GradientPlace> in_order = choice.places;
  std::ranges::stable_sort(in_order, {}, [&](const GradientPlace& one) { return memory_.ReadBytes(one.gradient); });
  while (too_many > fits && !cancelled.stop_requested()) {
    const size_t tried = (fits + too_many) / 2;
    if (tried == fits && known) break;
    StepChoice fewer = {choice.ranges, {in_order.begin(), in_order.begin() + static_cast<std::ptrdiff_t>(tried)}};
    std::ranges::sort(fewer.places, {}, &GradientPlace::gradient);
    std::optional<JudgedChoice> judged = Play(fewer);
    if (judged && HasRoom(*judged)) {
      known = std::move(judged);
      fits = tried;
    } else if (tried == 0) {
      break;
    } else {
      too_many = tried;
    }
  }
  return known;
}

void Judge::Refine(JudgedChoice& best, const std::stop_token& cancelled) {
  played_tasks_ = 0;
  const auto stopped = [&] { return cancelled.stop_requested() || played_tasks_ > kMostPlayedTasks; };
  for (bool better = true; better && !stopped();) {
    better = false;
    for (size_t range = 0; range < best.choice.ranges.size() && !stopped(); ++range) {
      StepChoice without = best.choice;
      without.ranges.erase(without.ranges.begin() + static_cast<std::ptrdiff_t>(range));
      if (TryInPlace(best, std::move(without))) {
        better = true;
        continue;
      }
      for (const int step : {-1, 1}) {
        StepChoice other = best.choice;
        int& parts = other.ranges[range].parts;
        parts += step;
        if (parts < 2 || parts > timed_.max_parts) continue;
        other.ranges[range].time_s = RangeS(timed_, other.ranges[range].first, other.ranges[range].last, parts);
        better = TryInPlace(best, std::move(other)) || better;
      }
    }
    for (size_t place = 0; place < best.choice.places.size() && !stopped(); ++place) {
      StepChoice without = best.choice;
      without.places.erase(without.places.begin() + static_cast<std::ptrdiff_t>(place));
      better = TryInPlace(best, std::move(without)) || better;
    }
  }
}

bool Judge::TryInPlace(JudgedChoice& best, StepChoice choice) {
  std::optional<JudgedChoice> judged = Play(choice);
  if (!judged || !HasRoom(*judged) || judged->played.total_s >= best.played.total_s * (1 - kNoGain)) return false;
  best = *std::move(judged);
  return true;
}

}  // namespace moeplan::planner
