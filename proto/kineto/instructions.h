// Makes instructions of a training graph from the pieces of a step.
//
// Neighbouring pieces with one owner (an operator, an autograd function, a backward node, a named part of the model,
// the optimizer) are one instruction, whose time is the sum of theirs. What an instruction reads is what the trace
// shows, and the order of the program elsewhere:
//
//   what computes            reads what computed before it, in the order of launches
//   a collective             reads what computed before its launch
//   what computes later      reads a collective unless it started before the collective had ended, which shows that it
//                            does not need it; what was launched behind that reads it, too
//   a weight gradient        reads like what computes; nothing in the backward pass reads it but the leaves of autograd
//   a leaf of autograd       (AccumulateGrad) reads like what computes, and all gradients so far
//   what a leaf sends        reads all gradients so far; nothing in the backward pass reads an ALL_REDUCE or
//                            REDUCE_SCATTER of that kind
//   the first work outside   of backward nodes reads all gradients and sums of them
#pragma once

#include <string>
#include <vector>

#include "models/status.h"
#include "models/training/training_graph.h"
#include "proto/kineto/weight_gradients.h"

namespace moeplan::kineto {

// Instructions of one name that no rule (rules.h) has.
struct Unmapped {
  std::string name;
  size_t count = 0;
  double time_s = 0;
  size_t line = 0;  // The first one's, in the trace.
};

struct InstructionOptions {
  int rank = -1;           // The trace's; -1: not known.
  int ranks_per_node = 0;  // The job's; 0: not known.
};

struct Instructions {
  std::vector<Instruction> all;
  double recognised_s = 0, unmapped_s = 0;
  std::vector<Unmapped> unmapped;  // Longest first.
  size_t without_bytes = 0;        // Collectives.
  bool is_too_large = false;       // They break off, because they are more than a graph may have.
  bool is_coarse = false;          // Neighbours were put together, because they were more than a graph may have.
};

Instructions InstructionsOf(const Trace& trace, const StepWork& work, const WeightGradients& gradients,
                            const InstructionOptions& options);

}  // namespace moeplan::kineto
