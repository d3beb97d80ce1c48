#include "planner/lancet/timeline.h"

namespace moeplan::planner {

double EndS(const TimedGraph& graph, std::span<const PartLaunch> order) {
  TwoStreamTimeline timeline(graph);
  for (const PartLaunch& launch : order) timeline.Run(launch);
  return timeline.streams().end_s();
}

void AppendRange(const TimedGraph& graph, const CutRange& range, std::vector<PartLaunch>& order) {
  const auto exchanges = [&](int i) { return graph.instructions[i].exchanges(); };
  for (int first = range.first, end = first; first <= range.last; first = end) {
    while (end <= range.last && exchanges(end) == exchanges(first)) ++end;
    for (int part = 0; part < range.parts; ++part) {
      for (int i = first; i < end; ++i) order.push_back({i, part, range.parts, range.first});
    }
  }
}

}  // namespace moeplan::planner
