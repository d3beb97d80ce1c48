#include "executor/sim/balanced_gate.h"

#include <algorithm>
#include <cmath>

#include "models/routing/token_copies.h"

namespace moeplan::executor {
namespace {

// How many of 0 ... end-1 leave `remainder` when divided by `divisor`.
int64_t CountBelow(int64_t end, int divisor, int remainder) { return (end - remainder + divisor - 1) / divisor; }

}  // namespace

int32_t BalancedGate::PairsOf(int expert, const GateArgs& args) const {
  if (layer_.gate == GateKind::kExpertChoice) return std::min(args.capacity, args.tokens.valid_rows);
  const int64_t first = int64_t{args.tokens.first_token} * layer_.top_k;
  const int64_t end = first + int64_t{args.tokens.valid_rows} * layer_.top_k;
  return static_cast<int32_t>(CountBelow(end, layer_.experts, expert) - CountBelow(first, layer_.experts, expert));
}

void BalancedGate::Route(const GateArgs& args) const {
  *args.sums.tokens = args.tokens.valid_rows;
  for (int expert = 0; expert < layer_.experts; ++expert) {
    const int32_t pairs = PairsOf(expert, args);
    if (args.counts != nullptr) args.counts[expert] = pairs;
    args.sums.pairs[expert] = pairs;
    args.sums.kept[expert] = std::min(pairs, args.capacity);
  }
}

int32_t BalancedGate::RowsToNode(int valid_rows, int nodes) const {
  const double places = layer_.gate == GateKind::kExpertChoice ? nodes : ExpectedPlaces(EvenRoutingOf(layer_), nodes);
  return static_cast<int32_t>(std::lround(valid_rows * places / nodes));
}

void BalancedGate::SplitByNode(const SplitByNodeArgs& args) const {
  std::fill_n(args.node_counts, args.nodes, RowsToNode(args.tokens.valid_rows, args.nodes));
}

void BalancedGate::RelayRouting(const RelayRoutingArgs& args) const {
  std::fill_n(args.row_counts, args.nodes, RowsToNode(args.valid_rows, args.nodes));
  const int64_t pairs = int64_t{args.nodes} * args.valid_rows * layer_.top_k;
  const int64_t most = int64_t{args.nodes} * std::min(args.capacity, args.valid_rows);
  for (int i = 0; i < args.experts_per_node; ++i) {
    const int64_t chosen = CountBelow(pairs, layer_.experts, args.own_node * args.experts_per_node + i);
    const bool experts_choose = layer_.gate == GateKind::kExpertChoice;
    args.pair_counts[i] = static_cast<int32_t>(experts_choose ? most : std::min(most, chosen));
  }
}

void BalancedGate::AssignSlots(const AssignSlotsArgs& args) {
  AssignSlotsArgs counts_alone = args;
  counts_alone.tokens.valid_rows = 0;
  gate_.AssignSlots(counts_alone);
}

}  // namespace moeplan::executor
