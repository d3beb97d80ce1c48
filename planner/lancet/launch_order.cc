#include "planner/lancet/launch_order.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <tuple>

namespace moeplan::planner {
namespace {

// Smaller is launched earlier, where dependencies leave a choice.
struct Rank {
  int place = 0;        // In the given order.
  bool behind = false;  // Right behind it.
  int own_place = 0;    // Of what is behind the same.

  friend auto operator<=>(const Rank&, const Rank&) = default;
};

// A range is one node, known by its first instruction; so is every other instruction.
class Sorter {
 public:
  Sorter(const TimedGraph& graph, std::span<const CutRange> ranges, std::span<const GradientPlace> places)
      : graph_(graph),
        ranges_(ranges),
        node_(graph.size()),
        rank_(graph.size()),
        needed_by_(graph.size()),
        needs_(graph.size(), 0) {
    std::iota(node_.begin(), node_.end(), 0);
    for (const CutRange& range : ranges) std::fill(&node_[range.first], &node_[range.last] + 1, range.first);
    for (int i = 0; i < graph.size(); ++i) rank_[i] = {i, false, i};
    for (const auto& [gradient, exchange] : places) {
      rank_[gradient] = {exchange, true, gradient};
      AddEdge(exchange, gradient);
    }
    for (int i = graph.size(); i-- > 0;) LinkProducers(i);
  }

  std::optional<std::vector<PartLaunch>> Sort() {
    for (int i = 0; i < graph_.size(); ++i) {
      if (node_[i] == i && needs_[i] == 0) ready_.push({rank_[i], i});
    }
    std::vector<PartLaunch> order;
    int instructions = 0;
    while (!ready_.empty()) {
      const int node = ready_.top().second;
      ready_.pop();
      instructions += Append(node, order);
      for (const int other : needed_by_[node]) {
        if (--needs_[other] == 0) ready_.push({rank_[other], other});
      }
    }
    if (instructions < graph_.size()) return std::nullopt;  // A cycle.
    return order;
  }

 private:
  void AddEdge(int from, int to) {
    needed_by_[node_[from]].push_back(node_[to]);
    ++needs_[node_[to]];
  }

  // From the last instruction to the first, so that ranks pass on to all that a gradient needs.
  void LinkProducers(int i) {
    for (const int producer : graph_.instructions[i].producers) {
      if (node_[producer] == node_[i]) continue;
      AddEdge(producer, i);
      Rank& rank = rank_[node_[producer]];
      const Rank& own = rank_[node_[i]];
      if (own.place < rank.place) rank = {own.place, own.behind, rank.own_place};
    }
  }

  int Append(int node, std::vector<PartLaunch>& order) {
    const auto range = std::ranges::find(ranges_, node, &CutRange::first);
    if (range == ranges_.end()) {
      order.push_back({.instruction = node});
      return 1;
    }
    AppendRange(graph_, *range, order);
    return range->last - range->first + 1;
  }

  const TimedGraph& graph_;
  std::span<const CutRange> ranges_;
  std::vector<int> node_;  // Of each instruction.
  std::vector<Rank> rank_;
  std::vector<std::vector<int>> needed_by_;
  std::vector<int> needs_;  // Nodes that have to be launched before.
  using Ready = std::pair<Rank, int>;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
};

}  // namespace

std::optional<std::vector<PartLaunch>> LaunchOrder(const TimedGraph& graph, std::span<const CutRange> ranges,
                                                   std::span<const GradientPlace> places) {
  return Sorter(graph, ranges, places).Sort();
}

}  // namespace moeplan::planner
