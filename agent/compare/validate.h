// Whether plans keep their promises: plans every workload of a grid, runs all candidates, and compares (contract,
// "RunReport and ValidationReport").
#pragma once

#include <functional>
#include <vector>

#include "agent/fleet.h"
#include "models/plan/plan.h"
#include "moeplan/v1/report.pb.h"

namespace moeplan::agent {

struct ValidationOptions {
  int top = 0;  // Only so many best candidates run, and the baselines; 0: all.
  std::function<void(double done, const std::string& what)> progress = [](double, const std::string&) {};
};

// Answers how a workload should run; who decides comes in from outside.
using PlanFunction = std::function<StatusOr<PlanAnswer>(const Workload&)>;

// Candidates with limited CTAs are left out where the fleet cannot limit them: the first that is left counts as chosen.
// Where times repeat (Fleet::repeats_times) every candidate runs once, and there are no last rounds.
StatusOr<v1::ValidationReport> Validate(Fleet& fleet, const std::vector<Workload>& workloads, const PlanFunction& plan,
                                        const ValidationOptions& options);

}  // namespace moeplan::agent
