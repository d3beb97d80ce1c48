// Measures what plans need on a running fleet, most useful first, within a budget.
//
// Every need is measured on all sibling groups at once; a time is the slowest rank's. Passes go over all needs again
// and again, so that slow drift of the machine spreads over every curve, until the estimates are tight or the budget is
// spent. Nothing is thrown away: outliers are the fit's business (models/fit).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/fleet.h"
#include "models/cost/samples.h"
#include "models/measurement/needs.h"
#include "models/training/training_graph.h"
#include "models/workload/workload.h"

namespace moeplan::agent {

struct Measurement {
  Need need;
  Workload context;  // The workload whose shapes a kernel takes.
};

// What the workloads of a grid need (resolved for `cluster`), most useful first.
std::vector<Measurement> MeasurementsOf(const std::vector<Workload>& resolved, const Cluster& cluster);
// Returns what every legal layout of the cluster needs, over a grid of sizes, and what steps need beside that
// (planner/layout/step_needs.h), most useful first.
std::vector<Measurement> MeasurementsOfLayouts(const Cluster& cluster, const std::vector<Need>& of_steps = {});

// Lists the measurements that a training graph needs, most useful first; kernels of MoE layers take the shapes of its
// workload. kInvalidInput: it has no work and no collectives, or its workload does not fit the cluster.
StatusOr<std::vector<Measurement>> MeasurementsOfGraph(const TrainingGraph& graph, const Cluster& cluster);

// These operations at their sizes, as given; kernels take the shapes of the workloads (resolved for the cluster), which
// default to those of its layouts. kInvalidInput names an operation, as "operations[2]", that none has the shapes of.
StatusOr<std::vector<Measurement>> MeasurementsOfOperations(const std::vector<Sample>& operations,
                                                            const std::vector<Workload>& resolved,
                                                            const Cluster& cluster);

// The same, and with each limit on CTAs once more what depends on it: collectives, and kernels beside communication
// (docs/overlap.md). Most useful first where `measurements` are. Limits above 0.
std::vector<Measurement> WithCtaLimits(const std::vector<Measurement>& measurements, const std::vector<int>& limits);

// Why a limit that a backend does not have cannot be measured.
Status CannotLimitCtas(int ctas);

struct CalibrationProgress {
  double done = 0;   // 0 to 1.
  std::string what;  // What is being measured.
};

struct CalibrationOptions {
  double budget_s = 60;
  std::string name;           // Of the samples.
  std::string taken_at;       // RFC 3339, for the provenance.
  std::vector<Sample> taken;  // Earlier, on the same cluster: they count, and their repeats are not taken again.
  // Called with each sample as it is taken, also with one that cannot be right (models/cost/plausible.h): the repeats
  // of one visit, with their provenance. An error ends the calibration.
  std::function<Status(const Sample&)> keep = [](const Sample&) { return OkStatus(); };
  std::function<void(const CalibrationProgress&)> progress = [](const CalibrationProgress&) {};
  // Called with a sentence for each key of which sizes are left out, for each reason why no library has a kernel, and
  // where the budget was too short for kernels that steps need.
  std::function<void(const std::string&)> left_out = [](const std::string&) {};
};

// All samples, those taken earlier with them, but for those that cannot be right: what was measured again and again and
// never could be right is missing. Where the memory of devices is known, what needs more than
// kShareForOperations of it is left out. Where times repeat (Fleet::repeats_times), each is taken once. kInvalidInput
// when the budget is not positive, nothing is to be measured, or collectives are to be limited that the fleet's backend
// cannot limit.
inline constexpr double kShareForOperations = 0.8;  // Weights and libraries have the rest.
StatusOr<SampleSet> Calibrate(Fleet& fleet, const std::vector<Measurement>& measurements,
                              const CalibrationOptions& options);

// Measures again, within a second or two, the most useful matrix product and all-to-all of `measurements`, and says how
// many times longer they take than in `before`, whose calibration had the same measurements: whether the machine is
// still the one that was calibrated.
struct Drift {
  CostKey key;
  double ratio = 1;
};
StatusOr<std::vector<Drift>> DriftSince(Fleet& fleet, const std::vector<Measurement>& measurements,
                                        const SampleSet& before);

}  // namespace moeplan::agent
