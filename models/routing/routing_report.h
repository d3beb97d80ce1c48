// What uneven routing costs, and what balancing would gain: the answer to a workload that says how pairs are routed.
//
// Mirrored field by field by moeplan.v1.RoutingReport. Ratios are those of the busiest to the mean, at least 1. Times
// are predicted times of the best plan of the changed workload, in seconds; absent where it has none.
#pragma once

#include <optional>
#include <vector>

namespace moeplan {

// As many slots as the busiest expert has pairs: nothing is dropped.
struct CapacityBalancing {
  double capacity_factor = 0;
  int slots = 0;  // T.
  std::optional<double> predicted_time_s;

  friend bool operator==(const CapacityBalancing&, const CapacityBalancing&) = default;
};

// The same experts, held by other EP ranks.
struct PlacementBalancing {
  // Experts in the order in which ranks hold them: the first E/N_EP are rank 0's.
  std::vector<int> physical_to_logical;
  double busiest_rank_ratio = 1;
  double busiest_rank_ratio_floor = 1;  // No placement does better; equal: this one is the best.
  std::optional<double> predicted_time_s;

  friend bool operator==(const PlacementBalancing&, const PlacementBalancing&) = default;
};

// Copies of the busiest experts in extra places. Pairs of an expert are shared evenly by its copies, each of which has
// T slots.
struct ReplicaBalancing {
  int extra_experts_per_rank = 1;
  std::vector<int> copies;  // By expert, at least 1, adding up to E + extra_experts_per_rank·N_EP.
  // As of a placement; an expert stands there as often as it has copies.
  std::vector<int> physical_to_logical;
  double busiest_rank_ratio = 1;
  double dropped_share = 0;
  double extra_weight_bytes = 0;  // On each rank.
  std::optional<double> predicted_time_s;

  friend bool operator==(const ReplicaBalancing&, const ReplicaBalancing&) = default;
};

struct RoutingReport {
  double busiest_expert_ratio = 1;  // Of pairs, before drops.
  double busiest_rank_ratio = 1;    // Of filled slots, over EP ranks that hold experts in their order.
  double dropped_share = 0;         // Of the pairs, at the given capacity factor.
  CapacityBalancing capacity;
  // Absent where there is one EP rank: nothing can be moved.
  std::optional<PlacementBalancing> placement;
  std::optional<ReplicaBalancing> replicas;

  friend bool operator==(const RoutingReport&, const RoutingReport&) = default;
};

}  // namespace moeplan
