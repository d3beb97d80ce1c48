// Compares whole choices of ranges and weight gradients on the timeline that layers have (models/timeline/timeline.h),
// with what the search leaves out: contention, the boundaries of ranges, and memory. Seconds, bytes.
#pragma once

#include <span>
#include <stop_token>
#include <vector>

#include "models/plan/step_tasks.h"
#include "models/timeline/timeline.h"
#include "planner/lancet/launch_order.h"
#include "planner/lancet/price_step.h"
#include "planner/lancet/step_memory.h"
#include "planner/lancet/timeline.h"

namespace moeplan::planner {

// A choice says what is cut, and which weight gradients are moved; an empty one is the given order.
struct StepChoice {
  std::vector<CutRange> ranges;  // In the given order.
  std::vector<GradientPlace> places;

  friend bool operator==(const StepChoice&, const StepChoice&) = default;
};

// A choice as it is launched and how it plays.
struct JudgedChoice {
  StepChoice choice;
  std::vector<StepRange> ranges;
  std::vector<StepLaunch> launches;
  StepTasks tasks;
  PlayedGraph played;
};

class Judge {
 public:
  // All is borrowed; `profile` may be null. Requires a validated graph, and `timed` made from it.
  Judge(const TrainingGraph& graph, const TimedGraph& timed, const Profile* profile);

  // Absent where no launch order has all of the choice.
  std::optional<JudgedChoice> Play(const StepChoice& choice);

  // The one that ends first, the earlier of equals; then what is left of its ranges and parts once those that do not
  // pay are taken out or cut otherwise. Never later than any of the choices. Where the graph says how much its outputs
  // may take at a time, all of that is among what takes no more, or no more than the given order does; of a choice that
  // takes more, weight gradients are taken out by halves, those that keep the most first, and then ranges, the last
  // first, until there is room. Requires one that can be launched. When cancelled, the best of those that were played.
  JudgedChoice Choose(std::span<const StepChoice> choices, const std::stop_token& cancelled);

  // The most that the graph's outputs take at a time (StepMemory).
  std::optional<double> PeakBytes(const JudgedChoice& judged) const {
    return memory_.PeakBytes(judged.ranges, judged.tasks, judged.played);
  }

  // Of boundaries and contention.
  const PriceNotes* notes() const { return pricer_.notes(); }

 private:
  bool HasRoom(const JudgedChoice& judged) const;
  std::optional<JudgedChoice> WithLess(StepChoice choice, const std::stop_token& cancelled);
  std::optional<JudgedChoice> WithFewerGradients(const StepChoice& choice, const std::stop_token& cancelled);
  void Refine(JudgedChoice& best, const std::stop_token& cancelled);
  bool TryInPlace(JudgedChoice& best, StepChoice choice);

  const TrainingGraph& graph_;
  const TimedGraph& timed_;
  StepTaskBuilder builder_;
  StepPricer pricer_;
  StepMemory memory_;
  double most_bytes_ = 0;  // Where the graph says one.
  double played_tasks_ = 0;
};

}  // namespace moeplan::planner
