#include "planner/lancet/cut_ranges.h"

#include <algorithm>
#include <limits>

#include "planner/lancet/axes.h"
#include "planner/lancet/way_back.h"

namespace moeplan::planner {
namespace {

constexpr double kRounding = 1e-12;  // Of a sum of times.

double JustBelow(double time_s) { return time_s * (time_s > 0 ? 1 - kRounding : 1 + kRounding); }

// The longest ranges that start at one border, by axes and length.
class Reach {
 public:
  explicit Reach(const TimedGraph& graph) : graph_(graph), axes_(graph) {}

  // The borders behind `from` at which a range that starts there may end, ascending.
  std::vector<int> Ends(const std::vector<int>& borders, size_t from) {
    std::vector<int> ends;
    axes_.Start(borders[from]);
    double length_s = 0;
    const double most_s =
        graph_.max_range_s > 0 ? graph_.max_range_s * (1 + kRounding) : std::numeric_limits<double>::infinity();
    for (size_t to = from + 1; to < borders.size(); ++to) {
      for (int i = borders[to - 1]; i < borders[to]; ++i) {
        if (!axes_.Extend()) return ends;
        length_s += graph_.instructions[i].whole_s();
      }
      if (length_s > most_s) break;
      ends.push_back(borders[to]);
    }
    return ends;
  }

 private:
  const TimedGraph& graph_;
  RangeAxes axes_;
};

// Plays ranges of one start and one k, each longer than the one before. Only the last stage is played anew when it
// grows: stages before it are launched before it. It is left unplayed while a bound on the time is enough.
class GrowingRange {
 public:
  GrowingRange(const TimedGraph& graph, StepTimeline& timeline, int first, int parts)
      : graph_(graph),
        timeline_(timeline),
        first_(first),
        stage_first_(first),
        end_(first),
        parts_(parts),
        axis_(graph.AxisFrom(first)) {
    timeline_.Rewind();
  }

  // Grows to [first, end). No less than nothing, and no more than its time: the end of the stages before the last, and
  // the last behind its stream. (Up to rounding: it is summed up in another order.)
  double GrowTo(int end) {
    for (; end_ < end; ++end_) {
      if (end_ > first_ && graph_.instructions[end_].stream != graph_.instructions[end_ - 1].stream) {
        PlayStage();
        stage_start_ = timeline_.streams();
        stage_first_ = end_;
        stage_work_s_ = 0;
      }
      stage_work_s_ += graph_.instructions[end_].PartS(parts_, axis_) * parts_;
    }
    ++launches_;  // A bound costs about as much.
    const double stream_s = stage_start_[graph_.instructions[stage_first_].stream];
    return std::max(stage_start_.end_s(), stream_s + stage_work_s_);
  }

  // Of what it has grown to.
  double TimeS() {
    PlayStage();
    return timeline_.streams().end_s();
  }
  double launches() const { return launches_; }

 private:
  void PlayStage() {
    if (played_end_ == end_) return;
    timeline_.Rewind(stage_start_);
    for (int part = 0; part < parts_; ++part) {
      for (int i = stage_first_; i < end_; ++i) timeline_.Run({i, part, parts_, first_});
    }
    launches_ += static_cast<double>(end_ - stage_first_) * parts_;
    played_end_ = end_;
  }

  const TimedGraph& graph_;
  StepTimeline& timeline_;
  StepTimeline::Streams stage_start_;
  const int first_;
  int stage_first_, end_, played_end_ = -1;
  const int parts_;
  const CutAxis axis_;
  double stage_work_s_ = 0;
  double launches_ = 0;
};

// The best of one run of forward instructions, from its end to its start: so what a range reads from before it was
// never played, and is there from the start.
class RunSearch {
 public:
  RunSearch(const TimedGraph& graph, const std::vector<int>& borders, double launches_each, StepTimeline& timeline,
            Reach& reach, WayBack& way_back)
      : graph_(graph),
        borders_(borders),
        launches_each_(launches_each),
        timeline_(timeline),
        reach_(reach),
        way_back_(way_back),
        best_(borders.size()) {}

  void Run(const std::stop_token& cancelled, CutSearchOutcome& outcome) {
    cancelled_ = cancelled;
    for (size_t from = borders_.size() - 1; from-- > 0 && !cancelled_.stop_requested();) Start(from, outcome);
    for (size_t from = 0; from + 1 < borders_.size(); from = best_[from].to) {
      if (best_[from].range.parts > 1) outcome.ranges.push_back(best_[from].range);
      if (best_[from].to <= from) return;  // Cancelled.
    }
  }

 private:
  struct Choice {
    double rest_s = 0;  // From here to the end of the run, with what cutting adds to the way back.
    CutRange range;     // parts 1: left as it is.
    size_t to = 0;
  };

  void Start(size_t from, CutSearchOutcome& outcome) {
    best_[from].rest_s = std::numeric_limits<double>::infinity();
    const std::vector<int> uncut(borders_.begin() + static_cast<std::ptrdiff_t>(from) + 1, borders_.end());
    const std::vector<int> ends = reach_.Ends(borders_, from);
    double left = launches_each_;
    for (int parts = 1; parts <= graph_.max_parts; ++parts) {
      const double share = left / (graph_.max_parts - parts + 1);  // What is left is for the parts to come, too.
      const double played = Try(from, parts == 1 ? uncut : ends, parts, share, outcome);
      left = std::max(0.0, left - played);
      outcome.launches += played;
    }
  }

  // The launches played.
  double Try(size_t from, const std::vector<int>& ends, int parts, double budget, CutSearchOutcome& outcome) {
    GrowingRange range(graph_, timeline_, borders_[from], parts);
    const double launches_before = way_back_.launches();
    const auto launches = [&] { return range.launches() + way_back_.launches() - launches_before; };
    size_t to = from;
    for (const int end : ends) {
      while (borders_[to] < end) ++to;
      const double to_beat_s = JustBelow(best_[from].rest_s);
      const double least_back_s = parts > 1 ? way_back_.LeastAddedS(borders_[from], end - 1, parts) : 0;
      if (JustBelow(range.GrowTo(end)) + JustBelow(least_back_s) + best_[to].rest_s < to_beat_s) {
        const double time_s = range.TimeS();
        const double back_s = BackS(borders_[from], end - 1, parts);
        const double total_s = time_s + back_s + best_[to].rest_s;
        if (total_s < to_beat_s) best_[from] = {total_s, {borders_[from], end - 1, parts, time_s}, to};
      }
      if (cancelled_.stop_requested()) break;
      if (launches() < budget || end == ends.back()) continue;
      if (parts > 1) outcome.all_ranges = false;  // Longer uncut stretches would only make sums finer.
      break;
    }
    return launches();
  }

  double BackS(int first, int last, int parts) {
    if (parts == 1) return 0;
    return way_back_.AddedS(first, last, parts).value_or(std::numeric_limits<double>::infinity());
  }

  const TimedGraph& graph_;
  const std::vector<int>& borders_;
  const double launches_each_;
  StepTimeline& timeline_;
  Reach& reach_;
  WayBack& way_back_;
  std::stop_token cancelled_;
  std::vector<Choice> best_;  // Of each border.
};

// A gate that no range may cut would keep what it is merged with from being cut, too.
bool StaysWhole(const TimedInstruction& one) { return one.op == InstructionOp::kGate && one.whole_batch_gate; }

bool ClosesGroup(const TimedGraph& graph, double group_s) { return group_s >= graph.group_s * (1 - kRounding); }

}  // namespace

double RangeS(const TimedGraph& graph, int first, int last, int parts) {
  StepTimeline timeline(graph);
  GrowingRange range(graph, timeline, first, parts);
  range.GrowTo(last + 1);
  return range.TimeS();
}

std::vector<std::vector<int>> GroupBorders(const TimedGraph& graph) {
  std::vector<std::vector<int>> runs;
  const auto forward = [&](int i) { return graph.instructions[i].phase == Pass::kForward; };
  for (int first = 0; first < graph.size();) {
    if (!forward(first)) {
      ++first;
      continue;
    }
    std::vector<int> borders = {first};
    double group_s = 0;
    bool closes = false;  // At the next border that is not inside a layer.
    int i = first;
    for (; i < graph.size() && forward(i); ++i) {
      const bool stays_whole = StaysWhole(graph.instructions[i]);
      if (stays_whole && borders.back() != i && !graph.instructions[i].inside_layer) borders.push_back(i);
      group_s += graph.instructions[i].whole_s();
      closes = closes || stays_whole || ClosesGroup(graph, group_s);
      if (!closes || (i + 1 < graph.size() && graph.instructions[i + 1].inside_layer)) continue;
      borders.push_back(i + 1);
      group_s = 0;
      closes = false;
    }
    if (borders.back() != i) borders.push_back(i);  // Too short for a group, and the last.
    runs.push_back(std::move(borders));
    first = i;
  }
  return runs;
}

CutSearchOutcome ChooseRanges(const TimedGraph& graph, double budget_launches, std::stop_token cancelled) {
  CutSearchOutcome outcome;
  const std::vector<std::vector<int>> runs = GroupBorders(graph);
  size_t starts = 0;
  for (const auto& borders : runs) starts += borders.size() - 1;
  StepTimeline timeline(graph);
  Reach reach(graph);
  WayBack way_back(graph);
  const double launches_each = budget_launches / static_cast<double>(starts);
  for (auto borders = runs.rbegin(); borders != runs.rend(); ++borders) {
    RunSearch(graph, *borders, launches_each, timeline, reach, way_back).Run(cancelled, outcome);
  }
  std::ranges::sort(outcome.ranges, {}, &CutRange::first);
  return outcome;
}

std::vector<CutRange> AllRanges(const TimedGraph& graph, size_t most, const std::stop_token& cancelled) {
  std::vector<CutRange> ranges;
  Reach reach(graph);
  WayBack way_back(graph);
  for (const std::vector<int>& borders : GroupBorders(graph)) {
    for (size_t from = 0; from + 1 < borders.size(); ++from) {
      for (const int end : reach.Ends(borders, from)) {
        if (!way_back.AddedS(borders[from], end - 1, 1)) continue;
        for (int parts = 2; parts <= graph.max_parts; ++parts) {
          if (ranges.size() == most || cancelled.stop_requested()) return {};
          ranges.push_back({borders[from], end - 1, parts, RangeS(graph, borders[from], end - 1, parts)});
        }
      }
    }
  }
  return ranges;
}

}  // namespace moeplan::planner
