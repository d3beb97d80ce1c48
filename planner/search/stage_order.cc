// Tasks are appended by start time, so a layer of the search holds the states after as many starts. Four things keep
// layers small:
// - The tasks of a stage are alike, so its n-th start is that of task n: in any schedule the n-th start of each stage
//   can be handed to task n, and what was done in time before still is. A state counts starts by stage, and no more.
// - When a task starts, everything but the last task on each stream has ended. So of two states with the same counts
//   and the same last tasks, the one whose streams are all free no later can go on as the other would, and the other is
//   dropped.
// - A task that leaves its stream idle for as long as another one takes that could run there is not started: to run
//   that one first delays nothing.
// - A state that cannot end before the best known order is dropped.
// The three droppings agree: whatever best completion a kept state has, the one of the smallest starts begins with a
// child that is generated, and that child is kept or a state of its layer can go on like it.
#include "planner/search/stage_order.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <random>
#include <tuple>

#include "models/check.h"
#include "planner/ties.h"

namespace moeplan::planner {
namespace {

constexpr int kNarrowWidth = 64;  // Of the first pass, whose order lets the second drop more.
constexpr double kForever = std::numeric_limits<double>::infinity();
constexpr double kNotStarted = -1;

struct State {
  std::array<std::int16_t, kMostOrderedStages> started = {};           // Tasks, by stage.
  std::array<std::int8_t, kMostOrderedLanes> last = {-1, -1, -1, -1};  // The stage started last, by lane.
  std::array<double, kMostOrderedLanes> free_s = {};                   // By lane.
  std::uint64_t kind = 0;  // Of what has started and what was last: equal where those are.
  double start_s = 0;      // Of the task started last.
  double floor_s = 0;      // No order that begins like this ends earlier.
  int step = -1;           // How this was reached; of a child: its parent.
  int stage = -1;          // Started last.
};

struct Step {
  int before = -1;
  int stage = -1;
};

class StageOrderSearch {
 public:
  StageOrderSearch(std::span<const OrderedStage> stages, const StopSignals& stop)
      : stages_(stages), stop_(stop), after_s_(stages.size(), 0) {
    for (const OrderedStage& stage : stages) tasks_ += stage.tasks;
    std::mt19937_64 any(0);  // Where kinds meet by chance, states are compared whole.
    for (std::uint64_t& kind : kinds_) kind = any();
    for (std::uint64_t& kind : lane_kinds_) kind = any();
    for (int stage = Count() - 1; stage >= 0; --stage) {
      for (const StageNeed& need : stages_[stage].needs) {
        const double path_s = after_s_[stage] + (need.all ? stages_[stage].tasks : 1) * TimeS(stage);
        after_s_[need.stage] = std::max(after_s_[need.stage], path_s);
      }
    }
  }

  StageOrderOutcome Run(const StageOrder& known, int budget_nodes) {
    best_ = known;
    best_s_ = PlayStages(stages_, known).time_s;
    const int widest = std::max(1, budget_nodes / tasks_);
    for (const int width : {std::min(kNarrowWidth, widest / 2), widest}) {
      if (width > 0) Pass(width);
      if (width > 0 && Proved()) break;
    }
    return {.stop_reason = Proved() ? StopReason::kProvedBest : StopReason::kOutOfBudget,
            .order = best_,
            .time_s = best_s_,
            .time_floor_s = Proved() ? best_s_ : dropped_floor_s_,
            .nodes = nodes_};
  }

 private:
  int Count() const { return static_cast<int>(stages_.size()); }
  int LaneOf(int stage) const { return stages_[stage].lane; }
  double TimeS(int stage) const { return stages_[stage].time_s; }
  int Left(const State& state, int stage) const { return stages_[stage].tasks - state.started[stage]; }

  bool Improves(double time_s) const { return time_s < best_s_ * (1 - kNoGain); }
  bool Proved() const { return !Improves(dropped_floor_s_); }

  void Pass(int width) {
    steps_.clear();
    dropped_floor_s_ = kForever;
    std::vector<State> layer;
    if (Improves(FloorS(State{}))) layer.push_back({});
    for (int started = 0; started < tasks_ && !layer.empty(); ++started) {
      std::vector<State> next = Undominated(Children(layer));
      if (stop_.Requested()) {  // What was to follow the layer may be missing from `next`.
        Drop(layer);
        return;
      }
      layer = Narrowed(std::move(next), width);
      for (State& state : layer) {
        steps_.push_back({state.step, state.stage});
        state.step = static_cast<int>(steps_.size()) - 1;
      }
      nodes_ += static_cast<int>(layer.size());
    }
    if (!layer.empty()) Take(*std::ranges::min_element(layer, {}, &State::floor_s));
  }

  void Drop(const std::vector<State>& states) {
    for (const State& state : states) dropped_floor_s_ = std::min(dropped_floor_s_, state.floor_s);
  }

  void Take(const State& complete) {
    StageOrder order;
    std::vector<int> index(Count());
    for (int stage = 0; stage < Count(); ++stage) index[stage] = stages_[stage].tasks;
    for (int step = complete.step; step >= 0; step = steps_[step].before) {
      order.push_back({steps_[step].stage, --index[steps_[step].stage]});
    }
    std::ranges::reverse(order);
    const double time_s = PlayStages(stages_, order).time_s;
    if (!Improves(time_s)) return;
    best_ = std::move(order);
    best_s_ = time_s;
  }

  // ---- What may follow a state.

  std::vector<State> Children(const std::vector<State>& layer) const {
    std::vector<State> children;
    for (const State& state : layer) {
      if (stop_.Requested()) break;
      for (int stage = 0; stage < Count(); ++stage) {
        if (!Released(state, stage) || LeavesRoom(state, stage)) continue;
        const State child = Started(state, stage);
        if (Improves(child.floor_s)) children.push_back(child);
      }
    }
    return children;
  }

  // Whether all that the stage's next task needs has started.
  bool Released(const State& state, int stage) const {
    if (Left(state, stage) == 0) return false;
    return std::ranges::all_of(stages_[stage].needs, [&](const StageNeed& need) {
      return need.all ? Left(state, need.stage) == 0 : state.started[need.stage] > state.started[stage];
    });
  }

  // When task `index` of a stage, which has started, is done; 0 for any time up to the last start.
  double DoneS(const State& state, int stage, int index) const {
    const bool may_run = state.started[stage] == index + 1 && state.last[LaneOf(stage)] == stage;
    return may_run ? state.free_s[LaneOf(stage)] : 0;
  }

  // When the stage's next task, which is released, can start, no earlier than the last start.
  double StartS(const State& state, int stage) const {
    double start_s = std::max(state.start_s, state.free_s[LaneOf(stage)]);
    for (const StageNeed& need : stages_[stage].needs) {
      const int index = need.all ? stages_[need.stage].tasks - 1 : state.started[stage];
      start_s = std::max(start_s, DoneS(state, need.stage, index));
    }
    return start_s;
  }

  // Whether another task could run whole on the same stream before this one starts.
  bool LeavesRoom(const State& state, int stage) const {
    const double start_s = StartS(state, stage);
    for (int other = 0; other < Count(); ++other) {
      if (other == stage || LaneOf(other) != LaneOf(stage) || !Released(state, other)) continue;
      const double other_start_s = StartS(state, other);
      if (other_start_s < start_s && other_start_s + TimeS(other) <= start_s) return true;
    }
    return false;
  }

  State Started(const State& state, int stage) const {
    State child = state;
    child.start_s = StartS(state, stage);
    child.free_s[LaneOf(stage)] = child.start_s + TimeS(stage);
    child.kind += kinds_[stage] + lane_kinds_[LaneOf(stage)] * (stage - child.last[LaneOf(stage)]);
    child.last[LaneOf(stage)] = static_cast<std::int8_t>(stage);
    child.started[stage] += 1;
    child.stage = stage;
    child.floor_s = FloorS(child);
    return child;
  }

  // ---- Bounds.

  // Each stage's tasks run one after the other; so do each stream's, after the last of which something may be left.
  double FloorS(const State& state) const {
    double floor_s = 0;
    std::array<double, kMostOrderedStages> earliest_s = {};  // Of the stage's next task.
    std::array<double, kMostOrderedLanes> work_s = {}, ready_s, after_s;
    ready_s.fill(kForever);
    after_s.fill(kForever);
    for (int stage = 0; stage < Count(); ++stage) {
      const int left = Left(state, stage), lane = LaneOf(stage);
      if (left == 0) continue;
      earliest_s[stage] = EarliestS(state, stage, earliest_s);
      floor_s = std::max(floor_s, earliest_s[stage] + left * TimeS(stage) + after_s_[stage]);
      ready_s[lane] = std::min(ready_s[lane], earliest_s[stage]);
      after_s[lane] = std::min(after_s[lane], after_s_[stage]);
      work_s[lane] += left * TimeS(stage);
    }
    for (int lane = 0; lane < kMostOrderedLanes; ++lane) {
      if (ready_s[lane] < kForever) floor_s = std::max(floor_s, ready_s[lane] + work_s[lane] + after_s[lane]);
      if (state.last[lane] >= 0) floor_s = std::max(floor_s, state.free_s[lane] + after_s_[state.last[lane]]);
    }
    return floor_s;
  }

  // No earlier can the stage's next task start; `earliest_s` is known of the stages before.
  double EarliestS(const State& state, int stage, const std::array<double, kMostOrderedStages>& earliest_s) const {
    double ready_s = std::max(state.start_s, state.free_s[LaneOf(stage)]);
    for (const StageNeed& need : stages_[stage].needs) {
      const int index = need.all ? stages_[need.stage].tasks - 1 : state.started[stage];
      const int to_come = index - state.started[need.stage];  // Before it, where it has not started.
      ready_s = std::max(ready_s, to_come < 0 ? DoneS(state, need.stage, index)
                                              : earliest_s[need.stage] + (to_come + 1) * TimeS(need.stage));
    }
    return ready_s;
  }

  // ---- Which states are kept.

  static bool Alike(const State& a, const State& b) {
    return a.kind == b.kind && a.last == b.last && a.started == b.started;
  }

  static bool KindFirst(const State* a, const State* b) {
    if (a->kind != b->kind) return a->kind < b->kind;
    return std::tie(a->started, a->last, a->free_s, a->step, a->stage) <
           std::tie(b->started, b->last, b->free_s, b->step, b->stage);
  }

  // Sorted by KindFirst; a search that is stopped leaves them in any order.
  std::vector<const State*> SortedByKind(const std::vector<State>& states) const {
    constexpr int kPartBits = 8;
    constexpr size_t kSortedWhole = 4096;
    std::vector<const State*> sorted;
    sorted.reserve(states.size());
    if (states.size() <= kSortedWhole) {
      for (const State& state : states) sorted.push_back(&state);
      std::ranges::sort(sorted, KindFirst);
      return sorted;
    }
    // To sort a large layer takes longer than a stop may wait, so it is sorted part by part.
    std::vector<std::vector<const State*>> parts(1 << kPartBits);
    for (const State& state : states) parts[state.kind >> (64 - kPartBits)].push_back(&state);
    for (std::vector<const State*>& part : parts) {
      if (!stop_.Requested()) std::ranges::sort(part, KindFirst);
      sorted.insert(sorted.end(), part.begin(), part.end());
    }
    return sorted;
  }

  std::vector<State> Undominated(const std::vector<State>& states) const {
    std::vector<State> kept;
    size_t first_alike = 0;
    for (const State* state : SortedByKind(states)) {
      if (stop_.Requested()) return kept;
      if (!kept.empty() && !Alike(kept.back(), *state)) first_alike = kept.size();
      const bool dominated = std::any_of(
          kept.begin() + static_cast<std::ptrdiff_t>(first_alike), kept.end(),
          [&](const State& other) { return std::ranges::equal(other.free_s, state->free_s, std::less_equal()); });
      if (!dominated) kept.push_back(*state);
    }
    return kept;
  }

  std::vector<State> Narrowed(std::vector<State> layer, int width) {
    if (layer.size() <= static_cast<size_t>(width)) return layer;
    std::ranges::stable_sort(layer, {}, &State::floor_s);
    dropped_floor_s_ = std::min(dropped_floor_s_, layer[width].floor_s);
    layer.resize(width);
    return layer;
  }

  std::span<const OrderedStage> stages_;
  const StopSignals& stop_;
  std::vector<double> after_s_;  // By stage: the least time from the end of its last task to the end of all.
  int tasks_ = 0;
  std::array<std::uint64_t, kMostOrderedStages> kinds_;
  std::array<std::uint64_t, kMostOrderedLanes> lane_kinds_;
  StageOrder best_;
  double best_s_ = kForever;
  std::vector<Step> steps_;            // Of this pass.
  double dropped_floor_s_ = kForever;  // The smallest of the states that were dropped for lack of budget.
  int nodes_ = 0;
};

void CheckStages(std::span<const OrderedStage> stages) {
  MOEPLAN_CHECK(!stages.empty() && stages.size() <= kMostOrderedStages);
  for (size_t i = 0; i < stages.size(); ++i) {
    MOEPLAN_CHECK(0 <= stages[i].lane && stages[i].lane < kMostOrderedLanes);
    MOEPLAN_CHECK(1 <= stages[i].tasks && stages[i].tasks <= kMostOrderedChunks);
    for (const StageNeed& need : stages[i].needs) {
      MOEPLAN_CHECK(0 <= need.stage && need.stage < static_cast<int>(i));
      MOEPLAN_CHECK(need.all || stages[need.stage].tasks == stages[i].tasks);
    }
  }
}

}  // namespace

PlayedStages PlayStages(std::span<const OrderedStage> stages, const StageOrder& order) {
  PlayedStages played;
  std::array<double, kMostOrderedLanes> free_s = {};
  std::vector<std::vector<double>> end_s(stages.size());  // By stage and index.
  std::vector<int> started(stages.size(), 0);
  for (size_t stage = 0; stage < stages.size(); ++stage) end_s[stage].resize(stages[stage].tasks, kNotStarted);
  size_t tasks = 0;
  for (const OrderedStage& stage : stages) tasks += stage.tasks;
  for (const auto& [stage, index] : order) {
    MOEPLAN_CHECK(end_s[stage][index] == kNotStarted);
    double start_s = free_s[stages[stage].lane];
    for (const StageNeed& need : stages[stage].needs) {
      const double done_s = need.all ? *std::ranges::max_element(end_s[need.stage]) : end_s[need.stage][index];
      MOEPLAN_CHECK(need.all ? started[need.stage] == stages[need.stage].tasks : done_s != kNotStarted);
      start_s = std::max(start_s, done_s);
    }
    played.start_s.push_back(start_s);
    free_s[stages[stage].lane] = end_s[stage][index] = start_s + stages[stage].time_s;
    ++started[stage];
    played.time_s = std::max(played.time_s, end_s[stage][index]);
  }
  MOEPLAN_CHECK(order.size() == tasks);
  return played;
}

StageOrderOutcome SearchStageOrder(std::span<const OrderedStage> stages, const StageOrder& known, int budget_nodes,
                                   const StopSignals& stop) {
  CheckStages(stages);
  MOEPLAN_CHECK(budget_nodes >= 1);
  return StageOrderSearch(stages, stop).Run(known, budget_nodes);
}

}  // namespace moeplan::planner
