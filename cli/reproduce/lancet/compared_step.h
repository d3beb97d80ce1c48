// A training step under the schedules that Lancet's paper compares, each on the timeline that `plan --graph` judges by
// (planner/lancet/judge.h): with contention where the profile has it, and with the boundaries of ranges.
//
// RAF runs the given order. The stand-in for Tutel cuts all-to-alls and experts alone, forward and backward, in 1, 2, 4
// or 8 parts, the same in all layers, and moves nothing. Lancet is the answer of PlanGraph. Seconds. Pure functions.
#pragma once

#include "models/cost/profile.h"
#include "models/plan/plan.h"
#include "models/status.h"
#include "models/training/training_graph.h"
#include "planner/lancet/paper_plan.h"

namespace moeplan::cli {

// A step as it ends, and how long a collective runs in it while nothing is computed.
struct StepEnd {
  double time_s = 0, exposed_s = 0;
};

// The gain of one schedule over another as the paper counts it: the speedup less 1. A share of the time that is saved
// would not do, because the mean of such shares does not follow from the mean speedup, which is what the paper states.
double Gain(const StepEnd& baseline, const StepEnd& planned);
// The share of the baseline's exposed communication that is gone.
double Cut(const StepEnd& baseline, const StepEnd& planned);

// Changes a step before it is compared. One change at a time tells what a figure hangs on.
struct StepChanges {
  bool contention = true;     // False: nothing slows anything else down.
  bool gradient_sums = true;  // False: dense gradients are not summed over the ranks.
  bool paper_limits = true;   // False: groups and ranges have no limits.
  double sum_scale = 1;       // How many times as long a sum of gradients takes,
  double exchange_scale = 1;  // and an all-to-all,
  double product_scale = 1;   // and a product: linear layers, experts and attention.
  double compute_slowdown =
      1;               // And how many times longer all compute takes beside a collective than was measured there.
  int most_parts = 0;  // Of a range; 0: as many as the graph allows.
  planner::LancetPasses passes;
};

// The graph with all of them but those of contention. Requires a graph as planner::TrainingGraphOf makes it, without
// limits.
TrainingGraph Changed(TrainingGraph graph, const StepChanges& changes);
// The profile with those. Without contention it has no entries of operations beside others.
Profile Changed(Profile profile, const StepChanges& changes);

struct ComparedStep {
  StepEnd raf, tutel, lancet;
  StepEnd paper;             // Of the paper's own greedy and dynamic program (planner/lancet/paper_plan.h).
  int most_parts = 1;        // Of a range of Lancet's.
  double planning_s = 0;     // Of PlanGraph, in wall time on this machine: differs from call to call.
  GraphPlanAnswer answer;    // Lancet's.
  GraphPlanAnswer in_parts;  // Tutel's, to be run.

  const StepEnd& faster() const { return tutel.time_s < raf.time_s ? tutel : raf; }
};

// The errors of PlanGraph. Requires what Changed does.
StatusOr<ComparedStep> CompareStep(const TrainingGraph& graph, const Profile& profile, const StepChanges& changes = {});

// Sums the times of the instructions of that kind.
double SumS(const TrainingGraph& graph, InstructionOp op);

}  // namespace moeplan::cli
