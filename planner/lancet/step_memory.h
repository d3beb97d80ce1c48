// The memory that the tensors of a training step take while it is played: what waits for the backward pass, what a
// moved weight gradient still has to read, and parts beside what they are put together to.
//
// An output is there from the start of what makes it to the end of the last that reads it, on any stream; one that
// nobody reads, to the end of what makes it, and a gradient of weights to the end of the step. Of an instruction that
// is cut each part is there by itself, for what reads the same part; where parts are put together behind a range, both
// are there while that lasts, and what reads them outside has the whole. Tensors without a size
// (Instruction::output_bytes) and those that nothing in the graph makes, such as weights, are not counted. Bytes. Pure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "models/plan/step_tasks.h"
#include "models/timeline/timeline.h"
#include "models/training/training_graph.h"

namespace moeplan::planner {

class StepMemory {
 public:
  // Requires a validated graph.
  explicit StepMemory(const TrainingGraph& graph);

  // The most at a time. Absent where the graph has no sizes. Requires tasks of the graph, made with these ranges, and
  // that they were played.
  std::optional<double> PeakBytes(std::span<const StepRange> ranges, const StepTasks& tasks,
                                  const PlayedGraph& played) const;

  // The memory that waits with an instruction: what it reads, as far as sizes are known.
  double ReadBytes(int instruction) const { return read_bytes_[instruction]; }

 private:
  class Launches;
  struct Output {
    int maker = 0;
    double bytes = 0;
    std::vector<int> readers;  // Instructions.
    bool is_kept = false;      // To the end of the step.
  };

  bool has_sizes_ = false;
  std::vector<Output> outputs_;     // Those that take something.
  std::vector<double> read_bytes_;  // Of each instruction.
  std::vector<int> forwards_;       // Of each instruction: itself, or the one whose way back it is; -1: neither.
};

}  // namespace moeplan::planner
