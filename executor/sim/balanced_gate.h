// The gate of jobs that carry no data: what the host reads of routing, where pair i of a source batch goes to expert
// i mod E. See sim_kernels.h.
#pragma once

#include "executor/host/host_gate.h"
#include "executor/kernels.h"

namespace moeplan::executor {

class BalancedGate {
 public:
  explicit BalancedGate(const Layer& layer) : layer_(layer), gate_(layer, GateWeights()) {}

  // These write counts and sums alone.
  void Route(const GateArgs& args) const;
  void AssignSlots(const AssignSlotsArgs& args);
  // A slice sends each node as many tokens as a router that chooses evenly does (models/routing/token_copies.h), since
  // pair i mod E would send a token's pairs to neighbours alone; all of them where experts choose.
  void SplitByNode(const SplitByNodeArgs& args) const;
  void RelayRouting(const RelayRoutingArgs& args) const;

 private:
  int32_t RowsToNode(int valid_rows, int nodes) const;
  int32_t PairsOf(int expert, const GateArgs& args) const;

  const Layer layer_;
  HostGate gate_;
};

}  // namespace moeplan::executor
