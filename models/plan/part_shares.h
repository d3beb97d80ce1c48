// How much of an instruction's work one of its parts is, and what that takes, by what it is cut along.
//
// Parts are even but for all-to-alls and experts of a graph that says how layers route (TrainingGraph::workload) and,
// where it has all-to-alls, that counts go ahead of their parts (Instruction::counts_bytes). Cut along samples, a part
// of these is what the busiest rank has of it, over what the whole batch brings (models/routing/part_rows.h), and times
// of parts in the graph are of such parts. Cut along the capacity a part is slots, filled or not, and those are even.
// Seconds; pure.
#pragma once

#include <optional>

#include "models/plan/plan.h"
#include "models/routing/part_rows.h"
#include "models/training/training_graph.h"

namespace moeplan {

// Whether the operation's rows differ from rank to rank in parts along samples: those of an exchange, and of the
// experts behind it.
inline bool HasUnevenParts(InstructionOp op) { return op == InstructionOp::kAllToAll || op == InstructionOp::kExpert; }

class PartShares {
 public:
  explicit PartShares(const TrainingGraph& graph);

  // The share of the work of `one`, of that graph, that one of `parts` parts is.
  double Of(const Instruction& one, int parts, CutAxis axis) const;

  // The time of one of `parts` even parts: on the straight line through the whole and the part that the graph times,
  // between a part of no fixed cost and the whole.
  // Absent where the graph's part is even itself, or times no part.
  std::optional<double> EvenS(const Instruction& one, int parts) const;

 private:
  bool IsUneven(const Instruction& one, int parts) const;

  std::optional<PartRows> rows_;
};

}  // namespace moeplan
