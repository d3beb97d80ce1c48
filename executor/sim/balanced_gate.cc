#include "executor/sim/balanced_gate.h"

#include <algorithm>

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

void BalancedGate::AssignSlots(const AssignSlotsArgs& args) {
  AssignSlotsArgs counts_alone = args;
  counts_alone.tokens.valid_rows = 0;
  gate_.AssignSlots(counts_alone);
}

}  // namespace moeplan::executor
