// What the tasks of a training step take (models/plan/step_tasks.h), alone and beside others.
//
// A part takes what the timed graph says; the boundaries of a cut take what the profile says of them, and nothing
// without one. Beside others a task is slowed down as measured: collectives by their own entries, and everything that
// computes as products of experts were (models/timeline/pricer.h). Seconds. Not thread-safe; all is borrowed.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "models/cost/profile.h"
#include "models/plan/step_tasks.h"
#include "models/timeline/price.h"
#include "planner/lancet/timed_graph.h"

namespace moeplan::planner {

class StepPricer {
 public:
  // `profile` may be null: then nothing slows anything down.
  StepPricer(const TimedGraph& graph, const Profile* profile);

  // One price for each task.
  std::vector<TaskPrice> Price(const StepTasks& tasks);

  // Whether any task of such a graph is slowed down by another.
  bool has_contention() const { return has_contention_; }
  // Whether boundaries of cuts take anything.
  bool prices_boundaries() const { return pricer_.has_value(); }
  const PriceNotes* notes() const { return pricer_ ? &pricer_->notes() : nullptr; }

 private:
  using Slowdowns = std::array<double, kContentions>;
  double AloneS(const Task& task, const StepTask& step);
  const Slowdowns& SlowdownsOf(const Task& task, const StepTask& step);
  Slowdowns LookUp(const CostKey& key, double size);

  const TimedGraph& graph_;
  std::optional<Pricer> pricer_;
  std::optional<KernelKey> product_;  // What stands for everything that computes.
  double product_size_ = 0;
  bool has_contention_ = false;
  std::map<std::pair<CostKey, double>, Slowdowns> known_;
};

}  // namespace moeplan::planner
