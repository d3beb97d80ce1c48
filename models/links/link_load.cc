#include "models/links/link_load.h"

#include <algorithm>
#include <vector>

#include "models/all_to_all/algorithm.h"

namespace moeplan {
namespace {

LinkLoad DirectLoad(double n, double m) {
  return {.starts = 1, .steps = {m - 1, n - m}, .shares = {(m - 1) / n, (n - m) / n}, .local_share = 1};
}

LinkLoad GatherLoad(GatherRoute route, double n, double m) {
  if (route == GatherRoute::kDirect) return DirectLoad(n, m);
  const double nodes = n / m;
  if (route == GatherRoute::kHierarchical) {
    return {
        .starts = 1, .steps = {m - 1, nodes - 1}, .shares = {(m - 1) / m, (nodes - 1) / nodes / m}, .local_share = 1};
  }
  const bool inside = m > 1, between = nodes > 1;
  const double crossings = between ? (inside ? nodes : nodes - 1) : 0;
  return {.starts = 1,
          .steps = {n - 1 - crossings, crossings},
          .shares = {inside ? (n - 1) / n : 0, between ? (n - 1) / n : 0},
          .local_share = 1};
}

// The gather and the scatter are one call, and the memory is passed once.
LinkLoad BothWays(LinkLoad load) {
  for (size_t i = 0; i < kLinkClasses; ++i) load.steps[i] *= 2, load.shares[i] *= 2;
  return load;
}

struct Traffic {
  std::array<double, kLinkClasses> messages = {}, blocks = {};
};

Traffic TrafficOf(const std::vector<Message>& messages, const GroupShape& group, int rank) {
  Traffic traffic;
  for (const Message& message : messages) {
    if (message.peer == rank) continue;
    const bool inside = message.peer / group.ranks_per_node == rank / group.ranks_per_node;
    const auto link = static_cast<size_t>(inside ? LinkClass::kIntraNode : LinkClass::kInterNode);
    traffic.messages[link] += 1;
    traffic.blocks[link] += static_cast<double>(message.bytes);
  }
  return traffic;
}

// Nodes are alike, so the ranks of the first one stand for all.
LinkLoad PhasesLoad(AllToAllAlgorithm algorithm, const GroupShape& group) {
  const size_t phases = DefinitionOf(algorithm).phases(group).size();
  LinkLoad load = {.starts = static_cast<double>(phases), .local_share = 1};
  PhaseList list;
  for (size_t phase = 0; phase < phases; ++phase) {
    Traffic most;
    for (int rank = 0; rank < group.ranks_per_node; ++rank) {
      const Exchange exchange = {.group = group, .rank = rank, .bytes = [](int, int) { return size_t{1}; }};
      ListPhase(algorithm, exchange, static_cast<int>(phase), list);
      for (const auto* messages : {&list.sends(), &list.receives()}) {
        const Traffic traffic = TrafficOf(*messages, group, rank);
        for (size_t i = 0; i < kLinkClasses; ++i) {
          most.messages[i] = std::max(most.messages[i], traffic.messages[i]);
          most.blocks[i] = std::max(most.blocks[i], traffic.blocks[i]);
        }
      }
    }
    for (size_t i = 0; i < kLinkClasses; ++i) {
      load.steps[i] += most.messages[i];
      load.shares[i] += most.blocks[i] / group.size;
    }
  }
  return load;
}

}  // namespace

std::optional<LinkLoad> LoadOf(const CollectiveKey& key, GatherRoute route) {
  const double n = key.group.size, m = key.group.ranks_per_node;
  if (key.collective == Collective::kAllToAllAllGather) return std::nullopt;
  if (n == 1) return LinkLoad();
  if (key.collective == Collective::kAllReduce) return BothWays(GatherLoad(route, n, m));
  if (key.collective != Collective::kAllToAll) return GatherLoad(route, n, m);
  if (key.algorithm == AllToAllAlgorithm::kDirect) return DirectLoad(n, m);
  const bool listed = key.group.size % key.group.ranks_per_node == 0 && n * m <= kMostListedBlocks;
  if (!listed || !AlgorithmAllowed(key.algorithm, key.group).ok()) return std::nullopt;
  return PhasesLoad(key.algorithm, key.group);
}

}  // namespace moeplan
