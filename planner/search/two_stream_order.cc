// Tasks are appended by start time, so a layer of the search holds the states after as many starts. Four things keep
// layers small:
// - Chunks are alike, so the n-th task of a stage is chunk n's: in any schedule, the n-th start of each stage can be
//   handed to chunk n, and what was done in time before still is. A state counts starts by stage, and no more.
// - When a task starts, everything but the last task on each stream has ended. So of two states with the same counts
//   and the same two last tasks, the one whose streams are both free no later can go on as the other would, and the
//   other is dropped.
// - A task that leaves its stream idle for as long as another one takes that could run there is not started: to run
//   that one first delays nothing.
// - A state that cannot end before the best known order is dropped.
// The three droppings agree: whatever best completion a kept state has, the one of the smallest starts begins with a
// child that is generated, and that child is kept or a state of its layer can go on like it.
#include "planner/search/two_stream_order.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <tuple>

#include "models/check.h"

namespace moeplan {
namespace {

constexpr int kLanes = 2;
constexpr int kNarrowWidth = 64;   // Of the first pass, whose order lets the second drop more.
constexpr double kNoGain = 1e-12;  // Less than this share of the time is rounding.
constexpr double kForever = std::numeric_limits<double>::infinity();

struct State {
  std::array<std::int16_t, kMostStages> started = {};  // Chunks, by stage.
  std::array<std::int8_t, kLanes> last = {-1, -1};     // The stage started last, by lane.
  std::array<double, kLanes> free_s = {};              // By lane.
  double start_s = 0;                                  // Of the task started last.
  double floor_s = 0;                                  // No order that begins like this ends earlier.
  int step = -1;                                       // How this was reached; of a child: how its parent was.
  int stage = -1;                                      // Started last.
};

struct Step {
  int before = -1;
  int stage = -1;
};

class OrderSearch {
 public:
  OrderSearch(std::span<const ChunkStage> stages, int chunks, const ChunkOrder& known)
      : stages_(stages), chunks_(chunks), best_(known), best_s_(PlayOrder(stages, chunks, known).time_s) {
    after_s_.assign(Count(), 0);
    for (int stage = Count() - 2; stage >= 0; --stage) after_s_[stage] = after_s_[stage + 1] + TimeS(stage + 1);
    for (int stage = 0; stage < Count(); ++stage) last_of_lane_[LaneOf(stage)] = stage;
  }

  OrderSearchOutcome Run(int budget_nodes) {
    const int widest = std::max(1, budget_nodes / Tasks());
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
  int Tasks() const { return Count() * chunks_; }
  int LaneOf(int stage) const { return static_cast<int>(stages_[stage].lane); }
  double TimeS(int stage) const { return stages_[stage].time_s; }

  bool Improves(double time_s) const { return time_s < best_s_ * (1 - kNoGain); }
  bool Proved() const { return !Improves(dropped_floor_s_); }

  void Pass(int width) {
    steps_.clear();
    dropped_floor_s_ = kForever;
    std::vector<State> layer = {State{}};
    for (int started = 0; started < Tasks() && !layer.empty(); ++started) {
      layer = Narrowed(Undominated(Children(layer)), width);
      for (State& state : layer) {
        steps_.push_back({state.step, state.stage});
        state.step = static_cast<int>(steps_.size()) - 1;
      }
      nodes_ += static_cast<int>(layer.size());
    }
    if (!layer.empty()) Take(*std::ranges::min_element(layer, {}, &State::floor_s));
  }

  void Take(const State& complete) {
    ChunkOrder order;
    std::vector<int> chunk(Count(), chunks_);
    for (int step = complete.step; step >= 0; step = steps_[step].before) {
      order.push_back({steps_[step].stage, --chunk[steps_[step].stage]});
    }
    std::ranges::reverse(order);
    const double time_s = PlayOrder(stages_, chunks_, order).time_s;
    if (!Improves(time_s)) return;
    best_ = std::move(order);
    best_s_ = time_s;
  }

  // ---- What may follow a state.

  std::vector<State> Children(const std::vector<State>& layer) const {
    std::vector<State> children;
    for (const State& state : layer) {
      for (int stage = 0; stage < Count(); ++stage) {
        if (!Released(state, stage) || LeavesRoom(state, stage)) continue;
        const State child = Started(state, stage);
        if (Improves(child.floor_s)) children.push_back(child);
      }
    }
    return children;
  }

  // Whether the stage's next chunk has started the stage before.
  bool Released(const State& state, int stage) const {
    return state.started[stage] < (stage == 0 ? chunks_ : state.started[stage - 1]);
  }

  // When chunk `chunk` is done with `stage`, which it has started; 0 for any time up to the last start.
  double DoneS(const State& state, int stage, int chunk) const {
    const bool may_run = state.started[stage] == chunk + 1 && state.last[LaneOf(stage)] == stage;
    return may_run ? state.free_s[LaneOf(stage)] : 0;
  }

  // When the stage's next chunk can start, no earlier than the last start.
  double StartS(const State& state, int stage) const {
    const double free_s = std::max(state.start_s, state.free_s[LaneOf(stage)]);
    return stage == 0 ? free_s : std::max(free_s, DoneS(state, stage - 1, state.started[stage]));
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
    child.last[LaneOf(stage)] = static_cast<std::int8_t>(stage);
    child.started[stage] += 1;
    child.stage = stage;
    child.floor_s = FloorS(child);
    return child;
  }

  // ---- Bounds.

  // No earlier can the stage's next chunk start it.
  double EarliestS(const State& state, int stage) const {
    int first = stage;  // Of the stages that chunk has not started.
    while (first > 0 && state.started[first - 1] <= state.started[stage]) --first;
    double ready_s = std::max(state.start_s, state.free_s[LaneOf(first)]);
    if (first > 0) ready_s = std::max(ready_s, DoneS(state, first - 1, state.started[stage]));
    for (int before = first; before < stage; ++before) ready_s += TimeS(before);
    return std::max(ready_s, state.free_s[LaneOf(stage)]);
  }

  // Each stage's chunks pass it one after the other; so do each stream's tasks, of which the last is its last stage's.
  double FloorS(const State& state) const {
    double floor_s = 0;
    std::array<double, kLanes> work_s = {}, ready_s = {kForever, kForever};
    for (int stage = 0; stage < Count(); ++stage) {
      const int left = chunks_ - state.started[stage], lane = LaneOf(stage);
      if (left == 0) continue;
      const double earliest_s = EarliestS(state, stage);
      floor_s = std::max(floor_s, earliest_s + left * TimeS(stage) + after_s_[stage]);
      ready_s[lane] = std::min(ready_s[lane], earliest_s);
      work_s[lane] += left * TimeS(stage);
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      if (ready_s[lane] < kForever) {
        floor_s = std::max(floor_s, ready_s[lane] + work_s[lane] + after_s_[last_of_lane_[lane]]);
      }
      if (state.last[lane] >= 0) floor_s = std::max(floor_s, state.free_s[lane] + after_s_[state.last[lane]]);
    }
    return floor_s;
  }

  // ---- Which states are kept.

  static std::vector<State> Undominated(std::vector<State> states) {
    std::ranges::stable_sort(states, {},
                             [](const State& state) { return std::tuple(state.started, state.last, state.free_s); });
    std::vector<State> kept;
    for (const State& state : states) {
      const bool alike =
          !kept.empty() && std::tie(kept.back().started, kept.back().last) == std::tie(state.started, state.last);
      // By ascending free_s[0]; kept.back() has the smallest free_s[1] of those before.
      if (!alike || state.free_s[1] < kept.back().free_s[1]) kept.push_back(state);
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

  std::span<const ChunkStage> stages_;
  const int chunks_;
  std::vector<double> after_s_;                    // What a chunk has left after the stage.
  std::array<int, kLanes> last_of_lane_ = {0, 0};  // The last stage, by lane.
  ChunkOrder best_;
  double best_s_;
  std::vector<Step> steps_;            // Of this pass.
  double dropped_floor_s_ = kForever;  // The smallest of the states that were dropped for lack of budget.
  int nodes_ = 0;
};

}  // namespace

PlayedOrder PlayOrder(std::span<const ChunkStage> stages, int chunks, const ChunkOrder& order) {
  PlayedOrder played;
  std::array<double, kLanes> free_s = {};
  std::vector<double> done_s(chunks, 0);  // The last stage of each chunk.
  std::vector<int> next(chunks, 0);
  for (const auto& [stage, chunk] : order) {
    MOEPLAN_CHECK(0 <= chunk && chunk < chunks && next[chunk] == stage);
    double& lane_free_s = free_s[static_cast<int>(stages[stage].lane)];
    played.start_s.push_back(std::max(lane_free_s, done_s[chunk]));
    lane_free_s = done_s[chunk] = played.start_s.back() + stages[stage].time_s;
    ++next[chunk];
  }
  MOEPLAN_CHECK(order.size() == stages.size() * chunks);
  played.time_s = *std::ranges::max_element(done_s);
  return played;
}

OrderSearchOutcome SearchOrder(std::span<const ChunkStage> stages, int chunks, const ChunkOrder& known,
                               int budget_nodes) {
  MOEPLAN_CHECK(!stages.empty() && stages.size() <= kMostStages);
  MOEPLAN_CHECK(chunks >= 1 && chunks <= kMostOrderedChunks && budget_nodes >= 1);
  return OrderSearch(stages, chunks, known).Run(budget_nodes);
}

}  // namespace moeplan
