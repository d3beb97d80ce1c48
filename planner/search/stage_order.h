// In which order tasks that come in stages start on streams, so that the last ends earliest.
//
// A stage is so many tasks alike: the same stream, the same time. A stream runs one task at a time, none is
// interrupted, and a task starts once its stream is free and what it needs is done: the task of the same index in
// another stage, or all of that stage. A chain of stages with one task a chunk is ScheMoE's problem (equations 3 to 9);
// the graph of a whole layer is one, too. Seconds everywhere. Pure functions.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "models/plan/plan.h"
#include "planner/stop_signals.h"

namespace moeplan::planner {

// What the search takes at most.
inline constexpr int kMostOrderedLanes = 4;
inline constexpr int kMostOrderedStages = 48;
inline constexpr int kMostOrderedChunks = std::numeric_limits<short>::max();

struct StageNeed {
  int stage = 0;     // An earlier one.
  bool all = false;  // All its tasks; else the one of the same index, and both stages have as many tasks.

  friend bool operator==(const StageNeed&, const StageNeed&) = default;
};

struct OrderedStage {
  int lane = 0;       // The stream: 0 to kMostOrderedLanes - 1.
  double time_s = 0;  // Of one task; finite, at least 0.
  int tasks = 1;      // 1 to kMostOrderedChunks.
  std::vector<StageNeed> needs;
};

struct StageTask {
  int stage = 0;
  int index = 0;  // From 0.

  friend bool operator==(const StageTask&, const StageTask&) = default;
};
// Every task once, after those it needs. Each stream runs its own tasks in this order.
using StageOrder = std::vector<StageTask>;

struct PlayedStages {
  std::vector<double> start_s;  // In the order's order.
  double time_s = 0;            // The last end.
};
// Each task as early as the order lets it.
PlayedStages PlayStages(std::span<const OrderedStage> stages, const StageOrder& order);

struct StageOrderOutcome {
  StopReason stop_reason = StopReason::kNotSearched;
  StageOrder order;         // The best found, never worse than the one given.
  double time_s = 0;        // When it ends.
  double time_floor_s = 0;  // No order ends earlier; proved best: time_s.
  int nodes = 0;            // States visited.
};

// Branch and bound over all orders, with `known` as the first to beat. What is proved best is so up to 1e-12 of it. The
// nodes are shared out evenly over the starts of tasks; where more states are left than that, only the most promising
// are followed, and the floor is the lowest bound of the others. The same arguments give the same order; a stop counts
// as a spent budget. Requires 1 to kMostOrderedStages stages, `known` an order of them, and at least one node.
StageOrderOutcome SearchStageOrder(std::span<const OrderedStage> stages, const StageOrder& known, int budget_nodes,
                                   const StopSignals& stop = {});

}  // namespace moeplan::planner
