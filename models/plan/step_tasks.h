// A training step as a task graph: what prices it (planner/lancet), plays it (models/timeline) and runs it (agent)
// share (design.md §9).
//
// Each launch of an instruction, or of one of its parts, is a task on the instruction's stream; a task waits for what
// it reads, part for part inside a range that is cut, and for all parts of what it reads from outside. A message to a
// neighbouring stage is the all-to-all of two ranks that it is priced as. A cut has boundaries, which are tasks, too:
//
//   "id#j.counts"  before part j of an all-to-all that is cut along samples: how many rows it brings to each expert,
//                  which the ranks must know first (Instruction::counts_bytes)
//   "id#join"      behind the range, on the compute stream: the parts of what instructions of the forward pass read
//                  outside it are put together (Instruction::output_bytes)
//
// Cutting along the batch takes nothing, because parts are views of what they are cut from; neither does what the
// backward pass reads, which is written part beside part. What goes back over a range (Instruction::forward) is cut
// along with it, but for weight gradients that cover an all-to-all, and has no boundaries: rows go back where they came
// from, and parts of gradients are written beside each other. Values only; pure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "models/plan/part_shares.h"
#include "models/plan/plan.h"
#include "models/schedule/task_graph.h"
#include "models/status.h"
#include "models/training/training_graph.h"

namespace moeplan {

// Consecutive instructions of the given order that are cut in the same number of parts.
struct StepRange {
  int first = 0, last = 0;  // Both within it.
  int parts = 2;
  CutAxis axis = CutAxis::kSamples;

  friend bool operator==(const StepRange&, const StepRange&) = default;
};

// One instruction, or one part of it, where the launch order has it.
struct StepLaunch {
  int instruction = 0;
  int part = 0, parts = 1;

  friend bool operator==(const StepLaunch&, const StepLaunch&) = default;
};

// A task is a part of its instruction, or one of the boundaries of a cut.
enum class StepRole { kPart, kCounts, kJoin };

struct StepTask {
  int instruction = 0;
  int parts = 1;  // That the instruction is cut in.
  StepRole role = StepRole::kPart;
  CutAxis axis = CutAxis::kSamples;
  std::vector<Work> work;        // Of this part; empty where the graph does not say.
  std::optional<double> time_s;  // Of this part, where the graph says it.

  friend bool operator==(const StepTask&, const StepTask&) = default;
};

struct StepTasks {
  TaskGraph graph;  // Its tasks carry no operation: `tasks` says what they do.
  std::vector<StepTask> tasks;

  friend bool operator==(const StepTasks&, const StepTasks&) = default;
};

// The time of one of `parts` parts as the graph has it: what partTimesS says, else for what computes the time over
// `parts`; absent for a collective that the graph does not time.
std::optional<double> KnownPartS(const Instruction& one, int parts);

// The given order, nothing cut.
std::vector<StepLaunch> GivenOrder(const TrainingGraph& graph);

// Makes the tasks of one graph in any order. The graph is borrowed.
class StepTaskBuilder {
 public:
  // Requires a validated graph.
  explicit StepTaskBuilder(const TrainingGraph& graph);

  // Requires ranges in the given order that do not overlap, and launches in an order in which producers come first,
  // each part once, and of backward instructions in parts those alone whose forward ones are in a range. Tasks that
  // compute are without their kernels where nobody is to run them.
  StepTasks Build(std::span<const StepRange> ranges, std::span<const StepLaunch> launches,
                  bool with_kernels = true) const;

  // Whether cutting has boundaries that take something.
  bool has_boundaries() const { return has_boundaries_; }

  // The outputs of an instruction that the forward pass reads behind `last`, as places among its outputs; those whose
  // parts are put together where a range ends there.
  std::vector<int> ReadBehind(int instruction, int last) const;

 private:
  class Tape;
  const TrainingGraph& graph_;
  const PartShares shares_;
  std::vector<std::vector<int>> producers_;
  std::vector<int> forwards_;                  // Of each instruction; -1: it is the way back of none.
  std::vector<std::vector<int>> last_reader_;  // Of each output of each instruction, in the forward pass; -1: none.
  bool has_boundaries_ = false;
};

// The tasks of a plan, whose order and ranges name instructions. kInvalidInput naming the launch or range: an id that
// the graph lacks, a part too many or too few, a range that is none, an order that no stream can run.
StatusOr<StepTasks> BuildStepTasks(const TrainingGraph& graph, const LancetAnswer& plan);

}  // namespace moeplan
