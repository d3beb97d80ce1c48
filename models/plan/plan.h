// The answer to "how should this layer run": the plan of each candidate and each paper's own rule.
//
// Values only, mirrored field by field by moeplan.v1.PlanResponse (contract). An absent optional means "not
// applicable".
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/routing/routing_report.h"
#include "models/schedule/gradient_slices.h"
#include "models/schedule/knobs.h"
#include "models/timeline/task_timing.h"
#include "models/training/training_graph.h"
#include "models/workload/workload.h"

namespace moeplan {

struct Plan {
  Knobs knobs;
  std::vector<std::string> order;  // Task names by start time.
  double predicted_time_s = 0;     // Of everything on the timeline, slices of gradients too.
  double low_s = 0;                // 90 % interval.
  double high_s = 0;
  double communication_time_s = 0;     // Sum over communication tasks.
  double exposed_communication_s = 0;  // While no compute runs.
  double compute_time_s = 0;
  double memory_bytes = 0;
  Timeline timeline;
  GradientExchange gradients;

  friend bool operator==(const Plan&, const Plan&) = default;
};

struct ParmAnswer {
  double t_baseline_s = 0, t_s1_s = 0, t_s2_s = 0;
  Family choice = Family::kParmS1;

  friend bool operator==(const ParmAnswer&, const ParmAnswer&) = default;
};

struct ChunkedTime {
  int chunks = 1;
  double time_s = 0;

  friend bool operator==(const ChunkedTime&, const ChunkedTime&) = default;
};

struct MontaAnswer {
  double t_baseline_s = 0;
  double o1_time_s = 0;
  std::optional<ChunkedTime> o2, o3;
  Family choice = Family::kMontaO1;

  friend bool operator==(const MontaAnswer&, const MontaAnswer&) = default;
};

struct SchemoeAnswer {
  int partition_degree = 1;        // r
  double opt_sche_time_s = 0;      // Of OptSche at r.
  double optimal_time_s = 0;       // Of `order`.
  std::vector<std::string> order;  // "C1.1": task and chunk, from 1, by start time.

  friend bool operator==(const SchemoeAnswer&, const SchemoeAnswer&) = default;
};

// Of a training graph, so not among the RuleAnswers of a layer.
// Along what a range of a training step is cut: the batch, or the slots of each expert.
enum class CutAxis { kSamples, kCapacity };

struct LancetAnswer {
  struct Assignment {
    std::string instruction, all_to_all;  // Ids, as all names here.

    friend bool operator==(const Assignment&, const Assignment&) = default;
  };
  struct Partition {
    std::string first, last;
    int parts = 2;
    double time_s = 0;  // Of the cut range by itself.
    CutAxis axis = CutAxis::kSamples;
    // Tensors that are cut where they enter, and, where the graph has their sizes, those put together behind it.
    std::vector<std::string> split, joined;

    friend bool operator==(const Partition&, const Partition&) = default;
  };

  std::vector<Assignment> weight_gradients;
  std::vector<Partition> partitions;
  double unscheduled_time_s = 0;   // Of the given order.
  double time_s = 0;               // Of `order`.
  std::vector<std::string> order;  // Launches: "id", or "id#1" ... "id#k" of what is cut in k.
  // The time in which collectives run in `order`, and in which one runs and nothing is computed.
  double communication_time_s = 0, exposed_communication_s = 0;
  double unscheduled_exposed_s = 0;  // The same of the given order.
  Timeline timeline;                 // Of `order`, boundaries of ranges among its tasks.
  // The most that outputs take at a time, in `order` and in the given order; absent where the graph has no sizes.
  std::optional<double> peak_bytes, unscheduled_peak_bytes;

  friend bool operator==(const LancetAnswer&, const LancetAnswer&) = default;
};

struct RuleAnswers {
  std::optional<ParmAnswer> parm;
  std::optional<MontaAnswer> monta;
  std::optional<SchemoeAnswer> schemoe;

  friend bool operator==(const RuleAnswers&, const RuleAnswers&) = default;
};

// Something that was not answered, and why: the missing key and the command that would measure it.
struct Skipped {
  std::string what;
  std::string reason;

  friend bool operator==(const Skipped&, const Skipped&) = default;
};

// Why a search ended. What was not searched, or is being searched still, has no reason yet.
enum class StopReason { kNotSearched = -1, kProvedBest, kOutOfBudget, kOutOfTime, kCancelled };

struct SearchOutcome {
  StopReason stop_reason = StopReason::kNotSearched;
  double time_floor_s = 0;  // No candidate of the searched space is faster.
  int evaluated = 0;        // Graphs priced, or found too large for the device.

  friend bool operator==(const SearchOutcome&, const SearchOutcome&) = default;
};

struct PlanAnswer {
  Workload workload;  // Resolved.
  std::string profile_name;
  int profile_version = 0;  // 0: from a file.
  RuleAnswers rules;
  std::vector<Skipped> skipped_rules, skipped_candidates;
  std::vector<std::string> warnings;
  SearchOutcome search;
  std::vector<Plan> candidates;  // Best first; the first is `best`. Empty: only rules answered.
  std::string explanation;
  std::optional<RoutingReport> routing;  // Where the workload says how pairs are routed.

  friend bool operator==(const PlanAnswer&, const PlanAnswer&) = default;
};

// The answer to a training graph.
struct GraphPlanAnswer {
  std::string profile_name;  // Empty: none was asked for.
  int profile_version = 0;
  LancetAnswer lancet;
  TrainingGraph graph;  // That it is the plan of.
  std::vector<std::string> warnings;
  std::string explanation;

  friend bool operator==(const GraphPlanAnswer&, const GraphPlanAnswer&) = default;
};

}  // namespace moeplan
