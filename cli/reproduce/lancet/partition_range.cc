#include "cli/reproduce/lancet/partition_range.h"

#include <algorithm>
#include <optional>

#include "planner/lancet/axes.h"
#include "planner/lancet/judge.h"
#include "planner/lancet/timed_graph.h"

namespace moeplan::cli {
namespace {

// The two forward all-to-alls of a layer of experts.
struct ExpertLayer {
  int first = 0, last = 0;
};

std::vector<ExpertLayer> ExpertLayersOf(const planner::TimedGraph& graph) {
  std::vector<ExpertLayer> layers;
  bool inside = false;
  for (int i = 0; i < graph.size(); ++i) {
    const planner::TimedInstruction& one = graph.instructions[i];
    if (!one.exchanges() || one.phase != Pass::kForward) continue;
    if (inside) {
      layers.back().last = i;
    } else {
      layers.push_back({i, i});
    }
    inside = !inside;
  }
  return layers;
}

bool CanBeCut(const planner::TimedGraph& graph, int first, int last) {
  planner::RangeAxes axes(graph);
  axes.Start(first);
  for (int i = first; i <= last; ++i) {
    if (!axes.Extend()) return false;
  }
  return true;
}

class Reach {
 public:
  // Half of what is computed between two layers of experts, on average, is a reach of 1.
  explicit Reach(const planner::TimedGraph& graph) : graph_(graph), layers_(ExpertLayersOf(graph)) {
    for (int i = 0; i < graph.size() && graph.instructions[i].phase == Pass::kForward; ++i) {
      forward_end_ = i + 1;
      if (!Inside(i)) half_s_ += graph.instructions[i].whole_s() / 2 / static_cast<double>(layers_.size());
    }
  }

  // Gives the ranges to try: they reach as far back and forth as they may, then less and less back and, for each of
  // these, forth.
  std::vector<planner::CutRange> Ranges(double reach, int parts) const {
    std::vector<planner::CutRange> ranges;
    int from = 0;
    for (const ExpertLayer& layer : layers_) {
      planner::CutRange range = {.first = layer.first, .last = layer.last, .parts = parts};
      const int first = FirstWithin(layer.first, from, reach * half_s_);
      const int last = LastWithin(layer.last, reach * half_s_);
      if (const std::optional<planner::CutRange> widest = Widest(layer, first, last, parts)) range = *widest;
      from = range.last + 1;
      ranges.push_back(range);
    }
    return ranges;
  }

  int forward_end() const { return forward_end_; }

 private:
  bool Inside(int i) const {
    return std::ranges::any_of(layers_, [i](const ExpertLayer& layer) { return i >= layer.first && i <= layer.last; });
  }

  int FirstWithin(int first, int from, double most_s) const {
    for (; first > from; --first) {
      most_s -= graph_.instructions[first - 1].whole_s();
      if (most_s < 0 || Inside(first - 1)) break;
    }
    return first;
  }

  int LastWithin(int last, double most_s) const {
    for (; last + 1 < forward_end_; ++last) {
      most_s -= graph_.instructions[last + 1].whole_s();
      if (most_s < 0 || Inside(last + 1)) break;
    }
    return last;
  }

  std::optional<planner::CutRange> Widest(const ExpertLayer& layer, int first, int last, int parts) const {
    for (; first <= layer.first; ++first) {
      for (int end = last; end >= layer.last; --end) {
        if (CanBeCut(graph_, first, end)) return planner::CutRange{.first = first, .last = end, .parts = parts};
      }
    }
    return std::nullopt;
  }

  const planner::TimedGraph& graph_;
  const std::vector<ExpertLayer> layers_;
  double half_s_ = 0;
  int forward_end_ = 0;
};

// The end of the last task of the forward pass.
double ForwardEndS(const planner::JudgedChoice& judged, int forward_end) {
  double end_s = 0;
  for (size_t i = 0; i < judged.tasks.tasks.size(); ++i) {
    if (judged.tasks.tasks[i].instruction < forward_end) end_s = std::max(end_s, judged.played.end_s[i]);
  }
  return end_s;
}

}  // namespace

StatusOr<double> UncutForwardS(const TrainingGraph& graph, const Profile& profile) {
  PriceNotes notes;
  ASSIGN_OR_RETURN(const planner::TimedGraph timed, planner::TimeGraph(graph, &profile, notes));
  return ForwardEndS(*planner::Judge(graph, timed, &profile).Play({}), Reach(timed).forward_end());
}

StatusOr<std::vector<ReachedForward>> ForwardByReach(const TrainingGraph& graph, const Profile& profile,
                                                     const std::vector<double>& reaches) {
  PriceNotes notes;
  ASSIGN_OR_RETURN(const planner::TimedGraph timed, planner::TimeGraph(graph, &profile, notes));
  planner::Judge judge(graph, timed, &profile);
  const Reach reach_of(timed);
  std::vector<ReachedForward> forwards;
  for (const double reach : reaches) {
    ReachedForward& best = forwards.emplace_back();
    best = {.reach = reach};
    for (int parts = 2; parts <= timed.max_parts; ++parts) {
      const std::optional<planner::JudgedChoice> judged = judge.Play({reach_of.Ranges(reach, parts), {}});
      if (!judged) continue;
      const double forward_s = ForwardEndS(*judged, reach_of.forward_end());
      if (best.parts == 1 || forward_s < best.forward_s) best = {reach, forward_s, parts};
    }
  }
  return forwards;
}

}  // namespace moeplan::cli
