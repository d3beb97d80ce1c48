#include "models/routing/node_rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "models/routing/expert_load.h"
#include "models/routing/part_rows.h"
#include "models/routing/token_copies.h"

namespace moeplan {
namespace {

// A node's part in what one rank does.
struct NodePart {
  double rows = 0;  // That it sends there.
  double pairs = 0;
};

// Each expert takes tokens by itself, as many as it has slots.
std::vector<NodePart> PartsWhereExpertsChoose(const Workload& workload, int nodes) {
  const LayerSizes sizes = SizesOf(workload.layer, workload.layout);
  const double taken = std::min<double>(sizes.slots, sizes.tokens), experts = workload.layer.experts / nodes;
  const double rows = sizes.tokens * (1 - std::pow(1 - taken / sizes.tokens, experts));
  return std::vector<NodePart>(nodes, {.rows = rows, .pairs = taken * experts});
}

// The chance that a token chooses any expert of a node, from that of a router without favourites. It grows as the
// node's share of the pairs does.
double ChanceOf(double even_chance, double share, int nodes) {
  return 1 - std::pow(1 - even_chance, std::min(share * nodes, static_cast<double>(nodes)));
}

// The rows and pairs of a slice for a node that has this share of all pairs, of which it keeps some.
NodePart PartOf(const Workload& workload, int nodes, double share, double pairs, double kept) {
  const Layer& layer = workload.layer;
  const double tokens = SizesOf(layer, workload.layout).tokens / workload.layout.tensor_parallel;
  const double even_chance = ExpectedPlaces(EvenRoutingOf(layer), nodes) / nodes;
  const double rows = tokens * ChanceOf(even_chance, share, nodes);
  // Tokens keep all their pairs or none, as they come; only where the first choices of all go first are others dropped.
  const bool by_priority = layer.gate == GateKind::kBatchPrioritized;
  const double kept_share = pairs > 0 ? kept / pairs : 0;
  return {.rows = by_priority ? std::min(rows, kept) : rows * kept_share, .pairs = kept};
}

// The slice that keeps most pairs is the first, where routing is uneven; otherwise all slices and nodes are alike.
std::vector<NodePart> PartsWhereTokensChoose(const Workload& workload, int nodes) {
  const Layer& layer = workload.layer;
  const int slices = workload.layout.tensor_parallel;
  const double tokens = SizesOf(layer, workload.layout).tokens, slots = SlotsOfExpert(workload);
  if (IsEven(workload)) {
    const double experts = static_cast<double>(layer.experts) / nodes / slices;  // Of a slice.
    const double pairs = layer.top_k * tokens / layer.experts;
    const NodePart part = PartOf(workload, nodes, 1.0 / nodes, experts * pairs, experts * std::min(pairs, slots));
    return std::vector<NodePart>(nodes, part);
  }
  std::vector<double> pairs = ExpertPairs(workload), kept(pairs.size());
  for (size_t expert = 0; expert < pairs.size(); ++expert) {
    pairs[expert] = std::min(pairs[expert], tokens) / slices;
    kept[expert] = std::min(slots, pairs[expert]);
  }
  const std::vector<double> shares = RankLoads(ExpertShares(workload), nodes);
  const std::vector<double> pairs_of = RankLoads(pairs, nodes), kept_of = RankLoads(kept, nodes);
  std::vector<NodePart> parts;
  for (int node = 0; node < nodes; ++node) {
    parts.push_back(PartOf(workload, nodes, shares[node], pairs_of[node], kept_of[node]));
  }
  return parts;
}

// Adds what chance gives the busiest of the ranks beyond the mean, as PartRows has it. A relay's tokens are those of
// one rank of each node: each of them reaches the relay's node or does not, with any of its choices.
void AddChance(const Workload& workload, int nodes, NodeRows& rows) {
  const Layer& layer = workload.layer;
  const Layout& layout = workload.layout;
  const double tokens = nodes * SizesOf(layer, layout).tokens / layout.tensor_parallel;
  const double most = ExpectedLargestNormal(layout.expert_parallel * layout.expert_sharding_parallel);
  const double different = layer.experts > 1 ? (layer.experts - layer.top_k) / (layer.experts - 1.0) : 0;
  rows.received += most * std::sqrt(rows.received * std::max(0.0, 1 - rows.received / tokens));
  rows.received = std::min(rows.received, tokens);
  rows.passed_on += most * std::sqrt(rows.passed_on * (1 - 1.0 / nodes) * different);
  rows.passed_on = std::min(rows.passed_on, tokens * layer.top_k);
  rows.arriving *= PartRows(workload).BusiestRatio(1);
}

}  // namespace

NodeRows BusiestNodeRows(const Workload& workload, int nodes) {
  const bool experts_choose = workload.layer.gate == GateKind::kExpertChoice;
  NodeRows rows;
  for (const NodePart& part :
       experts_choose ? PartsWhereExpertsChoose(workload, nodes) : PartsWhereTokensChoose(workload, nodes)) {
    rows.sent += part.rows;
    rows.received = std::max(rows.received, nodes * part.rows);
    rows.passed_on = std::max(rows.passed_on, nodes * part.pairs);
  }
  // A node's pairs go to its experts' ranks in equal parts, each to all shards of its expert, unless some are favoured.
  rows.arriving = experts_choose || IsEven(workload) ? rows.passed_on * workload.layout.expert_sharding_parallel
                                                     : BusiestSliceRows(workload).received;
  if (!IsDropless(workload.layer)) return rows;
  if (IsEven(workload)) {
    AddChance(workload, nodes, rows);
    return rows;
  }
  // A router that hardly favours any has at least what chance gives an even one of as many pairs.
  Workload even = workload;
  even.routing.reset();
  const NodeRows least = BusiestNodeRows(even, nodes);
  const double sent_share = 1 - DroppedShare(workload);
  return {.sent = std::max(rows.sent, sent_share * least.sent),
          .received = std::max(rows.received, sent_share * least.received),
          .passed_on = std::max(rows.passed_on, sent_share * least.passed_on),
          .arriving = std::max(rows.arriving, sent_share * least.arriving)};
}

}  // namespace moeplan
