// The way back of a range: the backward instructions that are cut because the forward ones are.
//
// Autograd goes back over a forward pass that was cut part by part, so a job in PyTorch that cuts a range cuts its way
// back as well; the paper's backward pass is whole. A graph says which it is: instructions that name their forward one
// (Instruction::forward) are cut with it, others never. Weight gradients that cover an all-to-all are not: they wait
// until all parts are there. Seconds. Not thread-safe; the graph is borrowed.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "planner/lancet/timeline.h"

namespace moeplan::planner {

class WayBack {
 public:
  explicit WayBack(const TimedGraph& graph);

  // The instructions whose forward ones lie in [first, last], ascending.
  std::vector<int> Of(int first, int last) const;

  // The least that cutting [first, last] in so many parts may add to the backward pass, below 0 where it may save: no
  // stream is done before its own work.
  double LeastAddedS(int first, int last, int parts) const;

  // The time that cutting adds where nothing else runs; absent where it cannot be cut, because something that stays
  // whole needs some of it and is needed by the rest.
  std::optional<double> AddedS(int first, int last, int parts);

  // Whether instructions with a way back are in the graph at all.
  bool empty() const { return empty_; }
  // Launches played so far, and instructions looked at.
  double launches() const { return launches_; }

 private:
  bool CanBeCut(const std::vector<int>& instructions) const;
  double PlayedS(const std::vector<int>& instructions, int parts);
  double WorkS(int stream, int first, int last, int parts) const;

  const TimedGraph& graph_;
  bool empty_ = true;
  std::vector<std::vector<int>> back_;  // Of each forward instruction.
  // The work of the ways back of all before a forward instruction, by stream, parts and that instruction.
  std::array<std::vector<std::vector<double>>, kStreamKinds> work_s_;
  std::optional<StepTimeline> timeline_;
  std::vector<PartLaunch> order_;
  double launches_ = 0;
};

}  // namespace moeplan::planner
