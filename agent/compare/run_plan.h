// Runs plans on a fleet and holds them against their predictions and the reference.
#pragma once

#include <vector>

#include "agent/fleet.h"
#include "models/plan/plan.h"
#include "moeplan/v1/report.pb.h"

namespace moeplan::agent {

// The contract's measure of a plan: runs before the ones that count, and those.
inline constexpr int kWarmUpRuns = 2;
inline constexpr int kMeasuredRuns = 9;
// Of which each of validate's last rounds counts the median.
inline constexpr int kRunsOfFinalRound = 3;

// Making weights, and the reference in double precision, may take so long.
inline constexpr double kPrepareS = 120;

// The graphs of one workload, made ready on every rank and run on demand. Frees them on all ranks when done with.
//
// Where the memory of devices is known, as many are ready at a time as their plans' memory_bytes let fit; one that was
// freed meanwhile is made ready again, and, unless times repeat, runs once before the run that counts.
class Bench {
 public:
  Bench(Fleet& fleet, Workload workload);

  // Makes a plan ready; its number.
  StatusOr<int> Add(const Plan& plan);
  // One run: barrier, the layer, the slowest rank.
  StatusOr<double> TimeOnceS(int graph);
  struct TimedRun {
    double time_s = 0;
    std::vector<v1::RankTimeline> ranks;
  };
  StatusOr<TimedRun> RunWithTimelines(int graph);
  struct Accuracy {
    // max|out − reference| / max|reference| over all ranks; after a backward pass the largest of this and the same of
    // the gradients of the input and of the gate.
    double max_relative_error = 0;
    bool values_computed = false;  // Else there was nothing to compare.
    int dropped = 0;               // (token, choice) pairs without a slot, over all source batches.
  };
  StatusOr<Accuracy> Check(int graph);
  Status Release();

 private:
  StatusOr<std::vector<v1::RankReply>> Call(const v1::RankCommand& command, const std::string& what);
  StatusOr<std::vector<v1::RankReply>> CallRun(int graph, bool timeline);

  struct Graph {
    Plan plan;
    std::string name;  // For errors.
    bool ready = false;
    int last_use = 0;
  };
  Status MakeReady(int graph);
  Status Prepare(int graph);
  Status Free(int graph);

  Fleet& fleet_;
  const Workload workload_;
  double room_bytes_;  // For more graphs.
  std::vector<Graph> graphs_;
  int uses_ = 0;
};

// Two warm-ups, nine runs, the check against the reference; the ranks' timelines are those of the last run. Where times
// repeat (Fleet::repeats_times), one run and no warm-up.
StatusOr<v1::RunReport> RunPlan(Fleet& fleet, const Workload& workload, const Plan& plan);

}  // namespace moeplan::agent
