#include "planner/search/launch_orders.h"

#include <algorithm>
#include <utility>

#include "models/schedule/carry.h"
#include "models/schedule/launch_order.h"
#include "planner/search/task_order.h"
#include "planner/search/tried.h"
#include "planner/ties.h"

namespace moeplan::planner {
namespace {

constexpr int kFirstLookNodes = 250;

struct Ordering {
  Candidate* candidate = nullptr;
  double floor_s = 0;   // Under all its orders.
  bool looked = false;  // At an order of its drawing.
};

class OrderSearch {
 public:
  OrderSearch(double fastest_s, int nodes, CostIndex& index, StopWatch& watch)
      : fastest_s_(fastest_s), budget_nodes_(nodes), index_(index), watch_(watch) {}

  LaunchOrders Run(const std::vector<Candidate*>& candidates) {
    std::vector<Ordering> orderings;
    for (Candidate* candidate : candidates) {
      orderings.push_back({candidate, TaskOrderFloorS(candidate->graph, candidate->prices.tasks)});
    }
    std::ranges::stable_sort(orderings, {}, [](const Ordering& one) { return one.candidate->time_s(); });
    LookAtEach(orderings);
    std::ranges::stable_sort(orderings, {}, &Ordering::floor_s);
    for (Ordering& one : orderings) {
      if (nodes_ < budget_nodes_ && CanBeFastest(one)) SearchOrderOf(one, budget_nodes_ - nodes_);
    }
    LaunchOrders found = {.fastest_s = fastest_s_, .time_floor_s = kNever};
    for (const Ordering& one : orderings) found.time_floor_s = std::min(found.time_floor_s, one.floor_s);
    return found;
  }

 private:
  // Candidates of one drawing have the same tasks, so what is found for one is tried on all.
  void LookAtEach(std::vector<Ordering>& orderings) {
    const int first_half = budget_nodes_ / 2;
    for (Ordering& one : orderings) {
      if (one.looked || nodes_ >= first_half || !CanBeFastest(one)) continue;
      one.looked = true;
      const std::vector<TaskId> order = SearchOrderOf(one, std::min(kFirstLookNodes, first_half - nodes_));
      if (!order.empty()) TryOnOthers(order, one, orderings);
    }
  }

  void TryOnOthers(const std::vector<TaskId>& order, const Ordering& found, std::vector<Ordering>& orderings) {
    for (Ordering& other : orderings) {
      if (other.looked || !DifferInCarriageAlone(other.candidate->knobs, found.candidate->knobs)) continue;
      other.looked = true;
      if (CanBeFastest(other)) TakeIfFaster(order, *other.candidate);
    }
  }

  bool CanBeFastest(const Ordering& one) { return one.floor_s < fastest_s_ * (1 - kTie) && !watch_.Stopped(); }

  // The order, where it is another than the candidate's.
  std::vector<TaskId> SearchOrderOf(Ordering& one, int nodes) {
    Candidate& candidate = *one.candidate;
    TaskOrderOutcome found =
        SearchTaskOrder(candidate.graph, candidate.prices.tasks, candidate.played, index_, nodes, watch_.signals());
    watch_.Stopped();  // The search of this order may have been cut short, and nothing may be left to look at.
    nodes_ += found.nodes;
    one.floor_s = std::max(one.floor_s, found.time_floor_s);
    if (!found.order.empty()) TakeIfFaster(found.order, candidate);
    return std::move(found.order);
  }

  // Only a gain that measurements can tell from none is taken.
  void TakeIfFaster(const std::vector<TaskId>& order, Candidate& candidate) {
    TaskGraph graph = Relaunched(candidate.graph, order);
    GraphPrices prices = PriceGraph(graph, index_);
    Candidate relaunched = MakeCandidate(candidate.knobs, std::move(graph), std::move(prices), candidate.memory_bytes);
    if (relaunched.time_s() >= candidate.time_s()) return;
    AddInterval(candidate);
    if (relaunched.time_s() >= candidate.time_s() - IndistinctGainS(candidate)) return;
    candidate = std::move(relaunched);
    fastest_s_ = std::min(fastest_s_, candidate.time_s());
  }

  double fastest_s_;
  const int budget_nodes_;
  CostIndex& index_;
  StopWatch& watch_;
  int nodes_ = 0;  // Visited.
};

}  // namespace

LaunchOrders SearchLaunchOrders(const std::vector<Candidate*>& candidates, double fastest_s, int nodes,
                                CostIndex& index, StopWatch& watch) {
  return OrderSearch(fastest_s, nodes, index, watch).Run(candidates);
}

}  // namespace moeplan::planner
