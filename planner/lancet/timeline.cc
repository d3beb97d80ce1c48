#include "planner/lancet/timeline.h"

#include <numeric>

namespace moeplan::planner {

double EndS(const TimedGraph& graph, std::span<const PartLaunch> order) {
  StepTimeline timeline(graph);
  for (const PartLaunch& launch : order) timeline.Run(launch);
  return timeline.streams().end_s();
}

void AppendRange(const TimedGraph& graph, const CutRange& range, std::vector<PartLaunch>& order) {
  std::vector<int> instructions(range.last - range.first + 1);
  std::iota(instructions.begin(), instructions.end(), range.first);
  AppendParts(graph, instructions, range.parts, order);
}

void AppendParts(const TimedGraph& graph, std::span<const int> instructions, int parts,
                 std::vector<PartLaunch>& order) {
  const auto stream = [&](size_t i) { return graph.instructions[instructions[i]].stream; };
  for (size_t first = 0, end = 0; first < instructions.size(); first = end) {
    while (end < instructions.size() && stream(end) == stream(first)) ++end;
    for (int part = 0; part < parts; ++part) {
      for (size_t i = first; i < end; ++i) order.push_back({instructions[i], part, parts, instructions.front()});
    }
  }
}

}  // namespace moeplan::planner
