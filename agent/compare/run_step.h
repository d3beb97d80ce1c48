// Runs training steps on a fleet and holds them against their predictions.
#pragma once

#include "agent/fleet.h"
#include "models/plan/plan.h"
#include "moeplan/v1/report.pb.h"

namespace moeplan::agent {

// Which order of a planned graph runs.
enum class StepOrder { kLancet, kUnscheduled };

// Runs the step as RunPlan does a layer (agent/compare/run_plan.h): warm-ups, nine runs and their median, or one run
// where times repeat. No values are compared: a graph says how much each instruction computes, not on what.
// kInvalidInput: the plan is not one of its graph, or ranks cannot run it (agent/step_operations.h).
StatusOr<v1::RunReport> RunStep(Fleet& fleet, const GraphPlanAnswer& answer, StepOrder order);

// The plan of a graph as it is given: nothing cut, nothing moved.
LancetAnswer UnscheduledPlan(const GraphPlanAnswer& answer);

}  // namespace moeplan::agent
