// A training graph with all it takes to play it: who reads whom, and what each part takes.
//
// A part's time is what the file says, else for compute the time over k, and for a collective the profile's time of
// bytes / k under (its name, DIRECT, groupSize, ranksPerNode) (contract; Lancet §3 counts an n-partitioned all-to-all
// at C/n). Where parts along samples are not even, those along the capacity still are (models/plan/part_shares.h).
#pragma once

#include <vector>

#include "models/cost/profile.h"
#include "models/plan/plan.h"
#include "models/status.h"
#include "models/timeline/pricer.h"
#include "models/training/training_graph.h"

namespace moeplan::planner {

struct TimedInstruction {
  InstructionOp op = InstructionOp::kOther;
  Pass phase = Pass::kForward;
  StreamKind stream = StreamKind::kCompute;
  bool weight_gradient = false;
  bool whole_batch_gate = false;  // A gate that looks at the whole batch.
  bool inside_layer = false;   // Behind the first instruction of a layer that is cut as a whole: no range begins here.
  int forward = -1;            // The place of the forward instruction that it is the way back of; -1: of none.
  std::vector<int> producers;  // Ascending.
  std::vector<double> part_s;  // One part of k = 1, 2, ...; k = 1 alone where it is never cut.
  std::vector<double> even_part_s;  // The same where a range is cut along the capacity; empty: as above.

  bool exchanges() const { return op == InstructionOp::kAllToAll; }
  double whole_s() const { return part_s.front(); }
  // One part of a range that is cut along that.
  double PartS(int parts, CutAxis axis) const {
    return (axis == CutAxis::kCapacity && !even_part_s.empty() ? even_part_s : part_s)[parts - 1];
  }
};

struct TimedGraph {
  std::vector<TimedInstruction> instructions;  // In the given order.
  int max_parts = 1;
  double group_s = 0, max_range_s = 0;

  int size() const { return static_cast<int>(instructions.size()); }
  // Says along what a range that starts there is cut, if it can be: rows of parts enter none along samples (axes.h).
  CutAxis AxisFrom(int first) const {
    const InstructionOp op = instructions[first].op;
    return op == InstructionOp::kAllToAll || op == InstructionOp::kExpert ? CutAxis::kCapacity : CutAxis::kSamples;
  }
};

// Whether some time has to come from a profile.
bool NeedsProfile(const TrainingGraph& graph);

// kInvalidInput: a time is neither in the graph nor, where `profile` is null, to be had from one; or a collective
// whose time is asked of the profile does not say its bytes, groupSize and ranksPerNode. kNotFound: the profile lacks
// a collective; the message names the keys and the command that measures them. What was extrapolated goes to `notes`.
// Requires a validated graph.
StatusOr<TimedGraph> TimeGraph(const TrainingGraph& graph, const Profile* profile, PriceNotes& notes);

}  // namespace moeplan::planner
