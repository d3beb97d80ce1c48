// In which order equal chunks pass their stages on two streams, one that computes and one that communicates, so that
// the last ends earliest.
//
// Every chunk passes the same stages in the same order. A stream runs one task at a time, none is interrupted, and a
// task starts once its stream is free and its chunk's stage before is done (ScheMoE, equations 3 to 9, with any number
// of stages and without the assumption that the two codecs are alike). Seconds everywhere. Pure functions.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <vector>

#include "models/plan/plan.h"

namespace moeplan {

enum class Lane { kCompute, kCommunication };

struct ChunkStage {
  std::string name;
  Lane lane = Lane::kCompute;
  double time_s = 0;  // Of one chunk; finite, at least 0.
};

struct ChunkTask {
  int stage = 0;
  int chunk = 0;  // From 0.

  friend bool operator==(const ChunkTask&, const ChunkTask&) = default;
};
// Every task once, a chunk's in the order of its stages. Each stream runs its own tasks in this order.
using ChunkOrder = std::vector<ChunkTask>;

struct PlayedOrder {
  std::vector<double> start_s;  // In the order's order.
  double time_s = 0;            // The last end.
};
// Each task as early as the order lets it.
PlayedOrder PlayOrder(std::span<const ChunkStage> stages, int chunks, const ChunkOrder& order);

// What the search takes at most.
inline constexpr int kMostStages = 8;
inline constexpr int kMostOrderedChunks = std::numeric_limits<short>::max();

struct OrderSearchOutcome {
  StopReason stop_reason = StopReason::kProvedBest;  // Or out of budget.
  ChunkOrder order;                                  // The best found, never worse than the one given.
  double time_s = 0;                                 // When it ends.
  double time_floor_s = 0;                           // No order ends earlier; proved best: time_s.
  int nodes = 0;                                     // States visited.
};

// Branch and bound over all orders, with `known` as the first to beat. What is proved best is so up to 1e-12 of it. The
// nodes are shared out evenly over the starts of tasks; where more states are left than that, only the most promising
// are followed, and the floor is the lowest bound of the others. Of 4000 random cases of ScheMoE's seven stages and 8
// chunks none took more than 65637 nodes and 50 ms (-O2, one core). The same arguments give the same order.
// Requires 1 to kMostStages stages, 1 to kMostOrderedChunks chunks, an order of them, and at least one node.
OrderSearchOutcome SearchOrder(std::span<const ChunkStage> stages, int chunks, const ChunkOrder& known,
                               int budget_nodes);

}  // namespace moeplan
