// How the MoE layers of a layout run: PlanLayer's candidates, kept once for all layouts that give it the same question.
#pragma once

#include <compare>
#include <string>
#include <vector>

#include "models/layout/layout_answer.h"
#include "planner/layout/cost_book.h"
#include "planner/layout/layout_space.h"
#include "planner/layout/rank_memory.h"
#include "planner/layout/step_time.h"
#include "planner/search/explain_plan.h"
#include "planner/stop_signals.h"

namespace moeplan::planner {

// What the question depends on: the tokens of a tensor-parallel group and the degrees. Where the groups lie in the
// cluster, and how often, changes nothing.
struct MoeQuestion {
  int tokens = 0;
  int tensor_parallel = 1;
  int expert_parallel = 1;
  int expert_sharding_parallel = 1;

  friend auto operator<=>(const MoeQuestion&, const MoeQuestion&) = default;
};
MoeQuestion QuestionOf(const LayoutRequest& request, const LayoutPoint& point);

struct MoePlan {
  Knobs knobs;
  MoeTime time;
  double low_s = 0, high_s = 0;  // 90 % interval of forward and backward together.
  MoeMemory memory;
  Plan plan;  // As priced for the layer of MoePlans.
};

struct MoePlans {
  // The best candidate, then each one that needs less memory than all before it.
  std::vector<MoePlan> plans;
  std::string reason;                 // Why there is none.
  std::vector<std::string> warnings;  // Of the pricing.
  bool extrapolated = false;          // Some group was not measured.
  Workload layer;                     // Resolved, and on
  Cluster groups;                     // the fewest nodes over which its groups close.
};

// Plans forward and backward as one, since they share a schedule, with at most kMostPieces chunks or partitions: a
// ranking of layouts needs no finer cut. `profile` is CostBook::ForLayer's. Pure; any thread.
inline constexpr int kMostPieces = 4;
MoePlans PlanMoe(const LayoutRequest& request, const MoeQuestion& question, const Profile& profile,
                 const StopSignals& stop = {});

// How the request's rows travel.
Dispatching DispatchingOf(const LayoutRequest& request);

// Whether rows travel in one piece by the schedule that training frameworks have: where it is asked for, with a
// dispatcher other than the all-to-all, and with exchanges that run beside another micro-batch. And which it is:
// BASELINE or, where ranks share tokens, PARM_S1, in which each sends its own.
bool HasOneSchedule(const LayoutRequest& request);
Family OneSchedule(int tensor_parallel);

// The plans of a layer in one piece as the training graph of a model has it (planner/lancet/model_graph.h): BASELINE
// or, where ranks share tokens or experts, PARM_S1, by direct all-to-alls.
MoePlans PlanMoeAsGraph(const LayoutRequest& request, const MoeQuestion& question, const Profile& profile,
                        const StopSignals& stop = {});

// The same of the plans of one family alone, with so many chunks and partitions where they are not 0.
struct MoeChoice {
  Family family = Family::kBaseline;
  int chunks = 0, partition_degree = 0;
};
MoePlans PlanMoeAs(const MoeChoice& choice, const LayoutRequest& request, const MoeQuestion& question,
                   const Profile& profile, const StopSignals& stop = {});

// The layer and the degrees that both ask about.
Workload WorkloadOf(const LayoutRequest& request, const MoeQuestion& question);

}  // namespace moeplan::planner
