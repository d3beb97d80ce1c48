#include "planner/search/unequal_chunks.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <numeric>
#include <utility>

#include "models/check.h"
#include "models/measurement/candidates.h"
#include "models/schedule/chunk_units.h"
#include "models/schedule/schedules.h"
#include "models/timeline/timeline.h"
#include "planner/search/overlap_floor.h"

namespace moeplan::planner {
namespace {

using Units = std::vector<int>;

Knobs InChunks(Knobs knobs, const Units& units) {
  knobs.chunk_shares = SharesOf(units);
  return knobs;
}

// A graph that stands for others of the same tasks, whose sizes grow evenly with the units of their chunk.
class ResizedGraph {
 public:
  ResizedGraph(TaskGraph graph, CostIndex& index)
      : graph_(std::move(graph)),
        pricer_(graph_, index, MeasuredContention(graph_, index)),
        sizes_(graph_.tasks.size()),
        times_s_(graph_.tasks.size()) {
    for (auto& times_s : times_s_) times_s.fill(-1);
    for (size_t task = 0; task < sizes_.size(); ++task) sizes_[task].fixed = graph_.tasks[task].size;
  }
  ResizedGraph(const ResizedGraph&) = delete;

  // `other`: the graph of a split that has other units in every chunk.
  void Compare(const Units& units, const TaskGraph& other, const Units& other_units) {
    for (size_t id = 0; id < sizes_.size(); ++id) {
      const Task &task = graph_.tasks[id], &same = other.tasks[id];
      const double per_unit = (same.size - task.size) / (other_units[task.chunk] - units[task.chunk]);
      sizes_[id] = {.fixed = task.size - per_unit * units[task.chunk], .per_unit = per_unit};
    }
  }

  const TaskGraph& graph() const { return graph_; }

  // The longest path over dependencies and the order of streams: the end where there is no contention.
  double PathS(const Units& units) {
    std::array<double, kStreamKinds> free_s = {};
    ends_s_.resize(sizes_.size());
    for (size_t id = 0; id < sizes_.size(); ++id) {
      const Task& task = graph_.tasks[id];
      double& stream_free_s = free_s[static_cast<size_t>(task.stream)];
      double start_s = stream_free_s;
      for (const TaskId before : task.dependencies) start_s = std::max(start_s, ends_s_[before]);
      stream_free_s = ends_s_[id] = start_s + TimeOf(id, units);
    }
    return *std::ranges::max_element(free_s);
  }

  std::vector<TaskPrice> Prices(const Units& units) {
    std::vector<TaskPrice> prices;
    prices.reserve(sizes_.size());
    for (size_t id = 0; id < sizes_.size(); ++id) {
      prices.push_back(pricer_.Price(static_cast<TaskId>(id), SizeOf(id, UnitsTaken(id, units))));
    }
    return prices;
  }

  bool misses_costs() const { return !pricer_.pricer().missing().empty(); }

 private:
  struct Size {
    double fixed = 0, per_unit = 0;
  };

  double TimeOf(size_t id, const Units& units) {
    const int taken = UnitsTaken(id, units);
    double& time_s = times_s_[id][taken];
    if (time_s < 0) time_s = pricer_.TimeAloneS(static_cast<TaskId>(id), SizeOf(id, taken));
    return time_s;
  }

  int UnitsTaken(size_t id, const Units& units) const {
    return sizes_[id].per_unit == 0 ? 0 : units[graph_.tasks[id].chunk];
  }
  double SizeOf(size_t id, int taken) const { return sizes_[id].fixed + sizes_[id].per_unit * taken; }

  const TaskGraph graph_;
  GraphPricer pricer_;
  std::vector<Size> sizes_;                               // By task.
  std::vector<std::array<double, kShareUnits>> times_s_;  // By task and units; negative: not yet known.
  std::vector<double> ends_s_;
};

struct Split {
  Units units;
  ResizedGraph* graph = nullptr;
  double path_s = 0;
};

class Weighing {
 public:
  Weighing(const Knobs& knobs, const Workload& workload, CostIndex& index)
      : knobs_(knobs), workload_(workload), index_(index) {
    std::map<int, std::vector<Units>> by_sum;
    for (const Units& split : UnequalSplits(PiecesOf(knobs))) {
      if (!ChunkSharesAllowed(InChunks(knobs, split), workload).ok()) continue;
      const Units units = *UnitsOf(SharesOf(split));
      by_sum[std::accumulate(units.begin(), units.end(), 0)].push_back(units);
    }
    for (const auto& [sum, splits] : by_sum) AddAlike(splits);
    for (Split& split : splits_) split.path_s = split.graph->PathS(split.units);
    std::ranges::stable_sort(splits_, {}, &Split::path_s);
  }

  int Weigh(double to_beat_s, const std::function<double(const Knobs&)>& improved) {
    if (std::ranges::any_of(graphs_, &ResizedGraph::misses_costs)) return 0;
    int priced = 0;
    for (const Split& split : splits_) {
      if (split.path_s >= to_beat_s) break;
      ++priced;
      const std::vector<TaskPrice> prices = split.graph->Prices(split.units);
      const TaskGraph& graph = split.graph->graph();
      if (OverlapFloorS(graph, prices) >= to_beat_s || Play(graph, prices).total_s >= to_beat_s) continue;
      to_beat_s = improved(InChunks(knobs_, split.units));
    }
    return priced;
  }

 private:
  // Of one number of units, so that slots are cut alike.
  void AddAlike(const std::vector<Units>& splits) {
    const auto differs = [&](const Units& other) {
      return std::ranges::mismatch(splits.front(), other, std::not_equal_to<>()).in1 == splits.front().end();
    };
    const auto other = std::ranges::find_if(splits, differs);
    ResizedGraph* all = nullptr;
    for (const Units& split : splits) {
      if (all == nullptr || other == splits.end()) all = &graphs_.emplace_back(GraphOf(split), index_);
      splits_.push_back({.units = split, .graph = all});
    }
    if (other != splits.end()) all->Compare(splits.front(), GraphOf(*other), *other);
  }

  TaskGraph GraphOf(const Units& units) const {
    StatusOr<TaskGraph> graph = BuildSchedule(InChunks(knobs_, units), workload_, index_.profile().cluster);
    MOEPLAN_CHECK(graph.ok());
    return PartOf(*std::move(graph), workload_.phase);
  }

  const Knobs& knobs_;
  const Workload& workload_;
  CostIndex& index_;
  std::deque<ResizedGraph> graphs_;
  std::vector<Split> splits_;  // The most promising first.
};

}  // namespace

int WeighUnequalChunks(const Knobs& knobs, const Workload& workload, CostIndex& index, double to_beat_s,
                       const std::function<double(const Knobs& improved)>& improved) {
  return Weighing(knobs, workload, index).Weigh(to_beat_s, improved);
}

}  // namespace moeplan::planner
