#include "planner/search/overlap_floor.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

namespace moeplan::planner {
namespace {

struct Work {
  double slowdown = 1;
  double time_s = 0;  // Alone.
};

// The tasks of one stream, the least slowed first.
using StreamWork = std::vector<Work>;

double SumS(const StreamWork& work) {
  double sum_s = 0;
  for (const Work& one : work) sum_s += one.time_s;
  return sum_s;
}

class Overlap {
 public:
  Overlap(const TaskGraph& graph, std::span<const TaskPrice> prices) : prices_(prices) {
    for (size_t task = 0; task < graph.tasks.size(); ++task) {
      if (prices[task].time_s <= 0) continue;
      const auto stream = static_cast<size_t>(graph.tasks[task].stream);
      tasks_[stream].push_back(static_cast<TaskId>(task));
      imposed_[stream].set(static_cast<size_t>(prices[task].imposes));
    }
  }

  double FloorS() const {
    double floor_s = 0;
    for (int one = 0; one < kStreamKinds; ++one) {
      for (int other = one + 1; other < kStreamKinds; ++other) floor_s = std::max(floor_s, FloorS(one, other));
    }
    return floor_s;
  }

 private:
  double FloorS(int one, int other) const {
    if (tasks_[other].empty()) return SumS(WorkBeside(one, other));
    const StreamWork mine = WorkBeside(one, other), theirs = WorkBeside(other, one);
    double floor_s = SumS(mine) + SumS(theirs);
    auto a = mine.begin(), b = theirs.begin();
    double left_a = 0, left_b = 0;  // Of how long *a and *b can still run beside the other stream.
    while (true) {
      if (left_a <= 0 && a != mine.end()) left_a = a->slowdown * a->time_s;
      if (left_b <= 0 && b != theirs.end()) left_b = b->slowdown * b->time_s;
      if (left_a <= 0 || left_b <= 0) return floor_s;
      const double saved = 1 / a->slowdown + 1 / b->slowdown - 1;
      if (saved <= 0) return floor_s;
      const double both_s = std::min(left_a, left_b);
      floor_s -= both_s * saved;
      left_a -= both_s;
      left_b -= both_s;
      if (left_a <= 0) ++a;
      if (left_b <= 0) ++b;
    }
  }

  StreamWork WorkBeside(int stream, int other) const {
    StreamWork work;
    work.reserve(tasks_[stream].size());
    for (const TaskId task : tasks_[stream]) {
      work.push_back({LeastSlowdown(prices_[task], imposed_[other]), prices_[task].time_s});
    }
    std::ranges::sort(work, {}, &Work::slowdown);
    return work;
  }

  static double LeastSlowdown(const TaskPrice& price, const ContentionSet& kinds) {
    double least = std::numeric_limits<double>::infinity();
    for (int kind = 0; kind < kContentions; ++kind) {
      if (kinds.test(kind)) least = std::min(least, price.slowdown[kind]);
    }
    return kinds.none() ? 1 : least;
  }

  const std::span<const TaskPrice> prices_;
  std::array<std::vector<TaskId>, kStreamKinds> tasks_;  // That take time.
  std::array<ContentionSet, kStreamKinds> imposed_;      // By any of them.
};

}  // namespace

double OverlapFloorS(const TaskGraph& graph, std::span<const TaskPrice> prices) {
  return Overlap(graph, prices).FloorS();
}

}  // namespace moeplan::planner
