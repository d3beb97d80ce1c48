// Along which axis each instruction of a range is cut, and whether it can be at all (Lancet §5.2; contract, "Axes").
//
// MATMUL, ELEMENTWISE, LAYER_NORM, SOFTMAX, ATTENTION, GATE (not one that looks at the whole batch), SEND and
// collectives other than all-to-alls carry the sample axis on; DISPATCH turns it into the irregular one, ALL_TO_ALL and
// EXPERT keep that, COMBINE turns it back. What COMBINE reads beside it, such as weights of the gate, may be cut along
// samples. Tensors without producer stay whole, and so does what an all-gather makes of such tensors alone: weights. A
// tensor from outside is cut along samples as it enters; an irregular one cannot enter, but into a range of ALL_TO_ALL
// and EXPERT alone, which is cut along the capacity.
//
// Every rule looks at one instruction and the axes of what it reads, so the axes of a range follow in one walk, without
// a solver.
#pragma once

#include <vector>

#include "models/plan/plan.h"
#include "planner/lancet/timed_graph.h"

namespace moeplan::planner {

class RangeAxes {
 public:
  // The graph is borrowed.
  explicit RangeAxes(const TimedGraph& graph) : graph_(graph), irregular_(graph.size(), false) {}

  // Begins an empty range that starts at `first`.
  void Start(int first);
  // Takes the next instruction in. Whether the range can be cut; once it cannot, no longer one can.
  bool Extend();
  // Along what a range that can be cut is: the capacity, if all of it can be.
  CutAxis axis() const { return along_capacity_ ? CutAxis::kCapacity : CutAxis::kSamples; }

 private:
  bool CarriesOn(int i);

  const TimedGraph& graph_;
  std::vector<bool> irregular_;  // Of each instruction in the range: the axis of its outputs.
  int first_ = 0, next_ = 0;
  bool along_capacity_ = true, along_samples_ = true;
};

}  // namespace moeplan::planner
