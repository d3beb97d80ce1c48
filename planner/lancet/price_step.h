// What the tasks of a training step take (models/plan/step_tasks.h), alone and beside others.
//
// A part takes what the timed graph says; the boundaries of a cut take what the profile says of them, and nothing
// without one. Beside others a task is slowed down as measured: collectives by their own entries, and everything that
// computes as products of experts were (models/timeline/pricer.h). What is measured beside a gather runs beside one
// inside a node, so collectives that cross the network on two streams divide its rate instead
// (models/timeline/timeline.h), which the profile's collectives tell (models/links/link_fit.h). All-to-alls do so where
// the profile has no contention alone. A trade of heads counts as a gather of keys and values would, not as an
// all-to-all. Seconds. Not thread-safe; all is borrowed.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "models/cost/profile.h"
#include "models/links/link_fit.h"
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

  // Whether any task of such a graph, of what was priced so far, is slowed down by another.
  bool has_contention() const { return has_contention_ || shares_network_; }
  // Whether boundaries of cuts take anything.
  bool prices_boundaries() const { return pricer_.has_value(); }
  const PriceNotes* notes() const { return pricer_ ? &pricer_->notes() : nullptr; }

 private:
  using Slowdowns = std::array<double, kContentions>;
  bool TradesHeads(const StepTask& step) const;
  double AloneS(const Task& task, const StepTask& step);
  const Slowdowns& SlowdownsOf(const Task& task, const StepTask& step);
  Slowdowns LookUp(const CostKey& key, double size);
  // Sets the shares of the network, where collectives of several streams cross it.
  void ShareNetwork(const StepTasks& tasks, std::vector<TaskPrice>& prices);

  const TimedGraph& graph_;
  const Profile* const profile_;
  std::optional<Pricer> pricer_;
  std::optional<KernelKey> product_;  // What stands for everything that computes.
  double product_size_ = 0;
  bool has_contention_ = false, shares_network_ = false;
  std::optional<std::optional<LinkLine>> links_;  // Once asked for; none where the profile has no collectives.
  std::map<std::pair<CostKey, double>, Slowdowns> known_;
};

}  // namespace moeplan::planner
