// When the instructions of a training step end: what computes on one stream, all-to-alls on another, and other
// collectives on the streams that they name.
//
// A stream runs its launches in launch order. A launch starts once its stream is free and what it reads is there: a
// part waits for the same part of a producer in its own range, and for every part of a producer outside it (contract,
// "Training graph"; Lancet §5.3). Contention and the boundaries of cuts are not modelled, as in the paper. Seconds.
//
// Choices are compared with it while they are searched for; those that are left are played with all that it leaves out
// (planner/lancet/judge.h). Not thread-safe: one object per thread; the graph is borrowed.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "planner/lancet/timed_graph.h"

namespace moeplan::planner {

// Consecutive instructions of the given order that are cut in the same number of parts.
struct CutRange {
  int first = 0, last = 0;  // Both within it.
  int parts = 2;
  double time_s = 0;  // By itself, from its start to its last end.

  friend bool operator==(const CutRange&, const CutRange&) = default;
};

inline constexpr int kNoRange = -1;

struct PartLaunch {
  int instruction = 0;
  int part = 0, parts = 1;
  int range_first = kNoRange;  // The first instruction of its range, or of the way back of that, where it is cut.
};

class StepTimeline {
 public:
  explicit StepTimeline(const TimedGraph& graph)
      : graph_(graph),
        whole_end_s_(graph.size(), 0),
        part_end_s_(size_t(graph.size()) * graph.max_parts, 0),
        range_of_(graph.size(), kNoRange) {}

  // When the streams are free.
  struct Streams {
    std::array<double, kStreamKinds> free_s = {};
    double& operator[](StreamKind stream) { return free_s[static_cast<size_t>(stream)]; }
    double operator[](StreamKind stream) const { return free_s[static_cast<size_t>(stream)]; }
    double end_s() const { return *std::ranges::max_element(free_s); }
  };

  // Queues a launch. What it reads of launches that were never queued is there from the start.
  void Run(const PartLaunch& launch) {
    const TimedInstruction& one = graph_.instructions[launch.instruction];
    double& free_s = streams_[one.stream];
    double start_s = free_s;
    for (const int producer : one.producers) {
      const bool together = launch.parts > 1 && range_of_[producer] == launch.range_first;
      const double ready_s = together ? PartEndS(producer, launch.part) : whole_end_s_[producer];
      if (ready_s > start_s) start_s = ready_s;
    }
    free_s = start_s + PartS(one, launch);
    PartEndS(launch.instruction, launch.part) = free_s;
    whole_end_s_[launch.instruction] = free_s;  // Of the parts queued so far; they share a stream.
    range_of_[launch.instruction] = launch.range_first;
  }

  const Streams& streams() const { return streams_; }
  // Goes back to where the streams were, or to the start. Launches queued since must be queued anew before they are
  // read.
  void Rewind() { streams_ = Streams(); }
  void Rewind(const Streams& streams) { streams_ = streams; }
  // Goes back to the start, and those are as never queued.
  void Forget(std::span<const int> instructions) {
    Rewind();
    for (const int i : instructions) whole_end_s_[i] = 0, range_of_[i] = kNoRange;
  }

 private:
  double PartS(const TimedInstruction& one, const PartLaunch& launch) const {
    if (launch.parts == 1 || one.even_part_s.empty()) return one.part_s[launch.parts - 1];
    return one.PartS(launch.parts, graph_.AxisFrom(launch.range_first));
  }
  double& PartEndS(int instruction, int part) { return part_end_s_[size_t(instruction) * graph_.max_parts + part]; }

  const TimedGraph& graph_;
  Streams streams_;
  std::vector<double> whole_end_s_;  // Of the last part queued.
  std::vector<double> part_end_s_;
  std::vector<int> range_of_;  // The range_first of the last launch.
};

// The end of the last launch. Requires an order in which producers come first, part by part within a range.
double EndS(const TimedGraph& graph, std::span<const PartLaunch> order);

// The launches of a range: by stages of all that runs consecutively on one stream, within a stage part by part (Lancet
// §5.3, figure 9). Appended to `order`.
void AppendRange(const TimedGraph& graph, const CutRange& range, std::vector<PartLaunch>& order);

// The same of instructions that need not be neighbours, such as the way back of a range. Requires at least one, and an
// ascending order.
void AppendParts(const TimedGraph& graph, std::span<const int> instructions, int parts, std::vector<PartLaunch>& order);

}  // namespace moeplan::planner
