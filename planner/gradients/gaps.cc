#include "planner/gradients/gaps.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace moeplan::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class GapFinder {
 public:
  GapFinder(const TaskGraph& graph, std::span<const TaskPrice> prices, const PlayedGraph& played, StreamKind stream,
            const std::function<double(TaskId)>& slowed_by)
      : graph_(graph), prices_(prices), played_(played), stream_(stream), slowed_by_(slowed_by) {
    for (TaskId task = 0; task < static_cast<TaskId>(graph.tasks.size()); ++task) {
      times_s_.push_back(played.start_s[task]);
      times_s_.push_back(played.end_s[task]);
      ended_.emplace_back(played.end_s[task], task);
      if (task < graph.first_backward) ready_s_ = std::max(ready_s_, played.end_s[task]);
      if (played.end_s[task] > played.start_s[task]) running_[StreamOf(task)].push_back(task);
    }
    times_s_.push_back(0);
    std::ranges::sort(times_s_);
    times_s_.erase(std::ranges::unique(times_s_).begin(), times_s_.end());
    std::ranges::sort(ended_);
  }

  std::vector<Gap> Run() && {
    double free_s = 0;
    for (TaskId task = 0; task < static_cast<TaskId>(graph_.tasks.size()); ++task) {
      if (graph_.tasks[task].stream != stream_) continue;
      AddBetween(free_s, played_.start_s[task], task);
      free_s = played_.end_s[task];
    }
    AddBetween(free_s, kInfinity, kNoTask);
    return std::move(gaps_);
  }

 private:
  size_t StreamOf(TaskId task) const { return static_cast<size_t>(graph_.tasks[task].stream); }

  // The stream is idle from free_s to next_s.
  void AddBetween(double free_s, double next_s, TaskId before) {
    bool open = false;
    for (auto time = std::ranges::lower_bound(times_s_, std::max(free_s, ready_s_)); time != times_s_.end(); ++time) {
      if (*time >= next_s) break;
      const double end_s = std::next(time) == times_s_.end() ? next_s : std::min(*std::next(time), next_s);
      const std::vector<TaskId> running = RunningAt(*time);
      if (!Harmless(running)) {
        open = false;
        continue;
      }
      if (!open) open = Open(*time, before);
      if (open) gaps_.back().parts.push_back({end_s, ImposedBy(running)});
    }
  }

  bool Open(double start_s, TaskId before) {
    Gap gap = {.start_s = start_s, .before = before};
    if (start_s > 0) {
      gap.after = EndingAt(start_s, before);
      if (gap.after == kNoTask) return false;
    }
    gaps_.push_back(std::move(gap));
    return true;
  }

  // One of the own stream, which needs no event, else the first launched.
  TaskId EndingAt(double time_s, TaskId before) const {
    TaskId found = kNoTask;
    for (auto ended = std::ranges::lower_bound(ended_, std::pair(time_s, TaskId{0}));
         ended != ended_.end() && ended->first == time_s; ++ended) {
      if (before != kNoTask && ended->second >= before) break;
      if (graph_.tasks[ended->second].stream == stream_) return ended->second;
      if (found == kNoTask) found = ended->second;
    }
    return found;
  }

  // On other streams, from time_s on.
  std::vector<TaskId> RunningAt(double time_s) const {
    std::vector<TaskId> running;
    for (size_t stream = 0; stream < running_.size(); ++stream) {
      if (stream == static_cast<size_t>(stream_)) continue;
      const std::vector<TaskId>& tasks = running_[stream];
      const auto later =
          std::ranges::upper_bound(tasks, time_s, {}, [&](TaskId task) { return played_.start_s[task]; });
      if (later == tasks.begin()) continue;
      if (const TaskId task = *std::prev(later); played_.end_s[task] > time_s) running.push_back(task);
    }
    return running;
  }

  bool Harmless(const std::vector<TaskId>& running) const {
    return std::ranges::all_of(running, [&](TaskId task) {
      double slowdown = 1;
      for (const TaskId other : running) {
        if (other == task) continue;
        slowdown = std::max(slowdown, prices_[task].slowdown[static_cast<int>(prices_[other].imposes)]);
      }
      return slowed_by_(task) <= slowdown;
    });
  }

  ContentionSet ImposedBy(const std::vector<TaskId>& running) const {
    ContentionSet beside;
    for (const TaskId task : running) beside.set(static_cast<int>(prices_[task].imposes));
    beside.reset(static_cast<int>(Contention::kNone));
    return beside;
  }

  const TaskGraph& graph_;
  const std::span<const TaskPrice> prices_;
  const PlayedGraph& played_;
  const StreamKind stream_;
  const std::function<double(TaskId)>& slowed_by_;
  std::vector<double> times_s_;                            // At which tasks start or end, ascending.
  std::vector<std::pair<double, TaskId>> ended_;           // By end, then by number.
  std::array<std::vector<TaskId>, kStreamKinds> running_;  // By stream, those that take time, in order.
  double ready_s_ = 0;                                     // When the forward pass is done.
  std::vector<Gap> gaps_;
};

}  // namespace

std::vector<Gap> GapsOf(const TaskGraph& graph, std::span<const TaskPrice> prices, const PlayedGraph& played,
                        StreamKind stream, const std::function<double(TaskId)>& slowed_by) {
  return GapFinder(graph, prices, played, stream, slowed_by).Run();
}

double EndIn(const Gap& gap, double time_s, const std::function<double(const ContentionSet&)>& slowdown) {
  double now_s = gap.start_s, end_s = now_s + time_s, slowed = 1;
  for (const Gap::Part& part : gap.parts) {
    if (const double here = slowdown(part.beside); here != slowed) {
      end_s = now_s + (end_s - now_s) / slowed * here;
      slowed = here;
    }
    if (end_s <= part.end_s) return end_s;
    now_s = part.end_s;
  }
  return kInfinity;
}

}  // namespace moeplan::planner
