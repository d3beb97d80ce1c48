#include "models/timeline/timeline.h"

#include <algorithm>
#include <array>
#include <limits>

#include "models/check.h"

namespace moeplan {
namespace {

class Player {
 public:
  Player(const TaskGraph& graph, std::span<const TaskPrice> prices)
      : graph_(graph), prices_(prices), done_(graph.tasks.size(), false) {
    played_.start_s.resize(graph.tasks.size());
    played_.end_s.resize(graph.tasks.size());
    for (TaskId task = 0; task < static_cast<TaskId>(graph.tasks.size()); ++task) StreamOf(task).queue.push_back(task);
  }

  PlayedGraph Run() {
    for (StartWhatCan(); AnyRunning(); StartWhatCan()) {
      UpdateRates();
      AdvanceTo(NextEnd());
    }
    MOEPLAN_CHECK(std::all_of(done_.begin(), done_.end(), [](bool done) { return done; }));
    return std::move(played_);
  }

 private:
  struct Stream {
    std::vector<TaskId> queue;
    size_t next = 0;  // Into queue: the first task that has not started.
    TaskId running = kNoTask;
    double end_s = 0;     // Of `running`, if nothing about its neighbours changes.
    double slowdown = 1;  // Under which end_s was worked out.
  };

  Stream& StreamOf(TaskId task) { return streams_[static_cast<int>(graph_.tasks[task].stream)]; }

  bool AnyRunning() const {
    return std::any_of(streams_.begin(), streams_.end(),
                       [](const Stream& stream) { return stream.running != kNoTask; });
  }

  bool Ready(TaskId task) const {
    const auto& before = graph_.tasks[task].dependencies;
    return std::all_of(before.begin(), before.end(), [&](TaskId dependency) { return done_[dependency]; });
  }

  // A task without duration ends as it starts and may free others, so streams are visited until none moves.
  void StartWhatCan() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Stream& stream : streams_) {
        while (stream.running == kNoTask && stream.next < stream.queue.size() && Ready(stream.queue[stream.next])) {
          Start(stream, stream.queue[stream.next++]);
          moved = true;
        }
      }
    }
  }

  void Start(Stream& stream, TaskId task) {
    const double time_s = prices_[task].time_s;
    played_.start_s[task] = now_s_;
    stream.running = task;
    stream.end_s = now_s_ + time_s;
    stream.slowdown = 1;
    if (time_s <= 0) Finish(stream);
  }

  void Finish(Stream& stream) {
    played_.end_s[stream.running] = now_s_;
    done_[stream.running] = true;
    stream.running = kNoTask;
  }

  // The most of the links between nodes that each collective gets: the level at which all parts together are the whole.
  // Infinite where there is enough for all.
  double NetworkLevel() const {
    constexpr double kEnough = std::numeric_limits<double>::infinity();
    std::array<double, kStreamKinds> wanted = {};
    double all = 0;
    for (int i = 0; i < kStreamKinds; ++i) {
      if (streams_[i].running != kNoTask) wanted[i] = prices_[streams_[i].running].network_share;
      all += wanted[i];
    }
    if (all <= 1) return kEnough;
    std::ranges::sort(wanted);
    double left = 1;
    for (int i = 0; i < kStreamKinds; left -= wanted[i++]) {
      const double level = left / (kStreamKinds - i);
      if (wanted[i] > level) return level;
    }
    return kEnough;
  }

  double SlowdownOf(const Stream& stream, double network_level) const {
    double slowdown = std::max(1.0, prices_[stream.running].network_share / network_level);
    for (const Stream& other : streams_) {
      if (&other == &stream || other.running == kNoTask) continue;
      const int contention = static_cast<int>(prices_[other.running].imposes);
      slowdown = std::max(slowdown, prices_[stream.running].slowdown[contention]);
    }
    return slowdown;
  }

  // The end moves only when the slowdown changes, so that an undisturbed task ends at exactly start + time.
  void UpdateRates() {
    const double network_level = NetworkLevel();
    for (Stream& stream : streams_) {
      if (stream.running == kNoTask) continue;
      const double slowdown = SlowdownOf(stream, network_level);
      if (slowdown == stream.slowdown) continue;
      stream.end_s = now_s_ + (stream.end_s - now_s_) / stream.slowdown * slowdown;
      stream.slowdown = slowdown;
    }
  }

  double NextEnd() const {
    double end_s = std::numeric_limits<double>::infinity();
    for (const Stream& stream : streams_) {
      if (stream.running != kNoTask) end_s = std::min(end_s, stream.end_s);
    }
    return end_s;
  }

  void AdvanceTo(double end_s) {
    CountUntil(end_s);
    now_s_ = std::max(now_s_, end_s);
    for (Stream& stream : streams_) {
      if (stream.running != kNoTask && stream.end_s <= now_s_) Finish(stream);
    }
    played_.total_s = now_s_;
  }

  void CountUntil(double end_s) {
    const double passed_s = end_s - now_s_;
    int communicating = 0;
    bool computing = false;
    for (const Stream& stream : streams_) {
      if (stream.running == kNoTask) continue;
      const Task& task = graph_.tasks[stream.running];
      if (Communicates(task.kind)) {
        ++communicating;
      } else if (task.stream == StreamKind::kCompute) {
        computing = true;
      }
    }
    played_.communication_time_s += communicating * passed_s;
    if (communicating > 0 && !computing) played_.exposed_communication_s += passed_s;
    if (computing) played_.compute_time_s += passed_s;
  }

  const TaskGraph& graph_;
  const std::span<const TaskPrice> prices_;
  std::array<Stream, kStreamKinds> streams_;
  std::vector<bool> done_;
  double now_s_ = 0;
  PlayedGraph played_;
};

}  // namespace

bool Communicates(TaskKind kind) {
  return kind == TaskKind::kAllToAll || kind == TaskKind::kAllGather || kind == TaskKind::kReduceScatter ||
         kind == TaskKind::kAllReduce;
}

PlayedGraph Play(const TaskGraph& graph, std::span<const TaskPrice> prices) {
  MOEPLAN_CHECK(prices.size() == graph.tasks.size());
  return Player(graph, prices).Run();
}

Timeline TimelineOf(const TaskGraph& graph, const PlayedGraph& played) {
  Timeline timeline;
  timeline.reserve(graph.tasks.size());
  for (size_t i = 0; i < graph.tasks.size(); ++i) {
    const Task& task = graph.tasks[i];
    timeline.push_back({task.name, task.kind, task.stream, task.chunk, played.start_s[i], played.end_s[i]});
  }
  return timeline;
}

}  // namespace moeplan
