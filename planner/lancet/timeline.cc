#include "planner/lancet/timeline.h"

namespace moeplan::planner {

double EndS(const TimedGraph& graph, std::span<const PartLaunch> order) {
  StepTimeline timeline(graph);
  for (const PartLaunch& launch : order) timeline.Run(launch);
  return timeline.streams().end_s();
}

void AppendRange(const TimedGraph& graph, const CutRange& range, std::vector<PartLaunch>& order) {
  const auto stream = [&](int i) { return graph.instructions[i].stream; };
  for (int first = range.first, end = first; first <= range.last; first = end) {
    while (end <= range.last && stream(end) == stream(first)) ++end;
    for (int part = 0; part < range.parts; ++part) {
      for (int i = first; i < end; ++i) order.push_back({i, part, range.parts, range.first});
    }
  }
}

}  // namespace moeplan::planner
