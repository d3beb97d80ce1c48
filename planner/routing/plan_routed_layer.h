// The plan of a layer whose pairs are routed unevenly, with what balancing them would gain.
#pragma once

#include <optional>

#include "planner/search/plan_layer.h"

namespace moeplan::planner {

// The answer of PlanLayer and, where the workload has a routing, `routing`: each remedy's time is that of the best plan
// of a changed workload, which RemediedWorkloads gives, so that anyone can ask for it again; absent where that search
// was stopped. Errors and requirements are PlanLayer's.
StatusOr<PlanAnswer> PlanRoutedLayer(const Workload& workload, const Profile& profile, const PlanOptions& options = {},
                                     const PlanBudget& budget = {});

// What RoutingReport says but for the times, and the workloads whose plans they are.
struct Remedies {
  RoutingReport report;
  Workload capacity;
  std::optional<Workload> placement, replicas;
};

// Of a resolved workload with a routing:
//   capacity   capacity_factor is E times the largest share (at most 1/k: no expert gets more pairs than tokens)
//   placement  tokens_per_expert in the order of the placement
//   replicas   one more expert on each EP rank: E + N_EP experts, tokens_per_expert those of the copies, and a
//              capacity_factor that leaves each the T slots of before
// With one EP rank, or without room for N_EP experts more, there are no replicas. Stopped, placements are the best that
// were found by then.
Remedies RemediedWorkloads(const Workload& workload, const StopSignals& stop = {});

}  // namespace moeplan::planner
