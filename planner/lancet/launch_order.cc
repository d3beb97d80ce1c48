#include "planner/lancet/launch_order.h"

#include <algorithm>
#include <map>
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

// A range is one node, known by its first instruction, and so is the way back of one; so is every other instruction.
class Sorter {
 public:
  Sorter(const TimedGraph& graph, std::span<const CutRange> ranges, std::span<const GradientPlace> places)
      : graph_(graph), node_(graph.size()), rank_(graph.size()), needed_by_(graph.size()), needs_(graph.size(), 0) {
    std::iota(node_.begin(), node_.end(), 0);
    for (int i = 0; i < graph.size(); ++i) rank_[i] = {i, false, i};
    for (const CutRange& range : ranges) {
      std::vector<int> all(range.last - range.first + 1);
      std::iota(all.begin(), all.end(), range.first);
      AddCut(std::move(all), range.parts);
    }
    AddWaysBack(ranges, places);
    for (const GradientPlace& place : places) Place(place);
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
  // Instructions that are launched part by part, and whole weight gradients between them.
  struct Cut {
    std::vector<int> instructions;  // Ascending.
    int parts = 1;
    std::vector<GradientPlace> covering;  // Behind the first part of their all-to-all.
  };

  void AddCut(std::vector<int> instructions, int parts) {
    const int node = instructions.front();
    for (const int i : instructions) node_[i] = node;
    cuts_[node] = {std::move(instructions), parts, {}};
  }

  void AddWaysBack(std::span<const CutRange> ranges, std::span<const GradientPlace> places) {
    if (ranges.empty()) return;
    std::vector<bool> moves(graph_.size(), false);
    for (const GradientPlace& place : places) moves[place.gradient] = true;
    std::vector<std::vector<int>> back(ranges.size());
    for (int i = 0; i < graph_.size(); ++i) {
      const int forward = graph_.instructions[i].forward;
      if (forward < 0 || moves[i]) continue;
      auto range = std::ranges::upper_bound(ranges, forward, {}, &CutRange::first);
      if (range == ranges.begin() || (--range)->last < forward) continue;
      back[range - ranges.begin()].push_back(i);
    }
    for (size_t range = 0; range < ranges.size(); ++range) {
      if (!back[range].empty()) AddCut(std::move(back[range]), ranges[range].parts);
    }
  }

  void Place(const GradientPlace& place) {
    const auto cut = cuts_.find(node_[place.exchange]);
    if (cut != cuts_.end() && IsThere(cut->second, place)) {
      node_[place.gradient] = cut->first;
      cut->second.covering.push_back(place);
      return;
    }
    rank_[place.gradient] = {node_[place.exchange], true, place.gradient};
    AddEdge(place.exchange, place.gradient);
  }

  // Whether the gradient can run between the parts of the cut: nothing there needs it, and all parts of what it needs
  // there are launched before the first part of its all-to-all, as they are of a stage before. Gradients that cover
  // something themselves are not counted on.
  bool IsThere(const Cut& cut, const GradientPlace& place) const {
    const auto stream = [&](int i) { return graph_.instructions[i].stream; };
    const auto exchange = std::ranges::lower_bound(cut.instructions, place.exchange);
    auto stage = exchange;
    while (stage != cut.instructions.begin() && stream(*(stage - 1)) == stream(*exchange)) --stage;
    const std::span<const int> before(cut.instructions.begin(), stage);
    const auto is_there = [&](int producer) {
      return node_[producer] != node_[place.exchange] || std::ranges::binary_search(before, producer);
    };
    const auto needs_it = [&](int i) {
      return std::ranges::binary_search(graph_.instructions[i].producers, place.gradient);
    };
    return std::ranges::all_of(graph_.instructions[place.gradient].producers, is_there) &&
           std::ranges::none_of(cut.instructions, needs_it);
  }

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

  // The number of instructions appended.
  int Append(int node, std::vector<PartLaunch>& order) {
    const auto found = cuts_.find(node);
    if (found == cuts_.end()) {
      order.push_back({.instruction = node});
      return 1;
    }
    Cut& cut = found->second;
    const int instructions = static_cast<int>(cut.instructions.size() + cut.covering.size());
    if (cut.covering.empty()) {
      AppendParts(graph_, cut.instructions, cut.parts, order);
      return instructions;
    }
    std::ranges::sort(cut.covering, {}, &GradientPlace::gradient);
    std::vector<PartLaunch> launches;
    AppendParts(graph_, cut.instructions, cut.parts, launches);
    for (const PartLaunch& launch : launches) {
      order.push_back(launch);
      if (launch.part > 0) continue;
      for (const auto& [gradient, exchange] : cut.covering) {
        if (exchange == launch.instruction) order.push_back({.instruction = gradient});
      }
    }
    return instructions;
  }

  const TimedGraph& graph_;
  std::vector<int> node_;    // Of each instruction.
  std::map<int, Cut> cuts_;  // By node.
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
