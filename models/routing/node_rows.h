// How many rows ranks exchange that send each token once to each node, and there its pairs to their experts.
//
// Expected counts; as models/routing/expert_load.h says, every batch and every slice of one is like the average. Of a
// router that favours some experts, the k choices of a token are taken to be drawn one by one with the experts' shares.
// Requires a resolved workload; pure.
#pragma once

#include "models/workload/workload.h"

namespace moeplan {

struct NodeRows {
  // Between nodes: of a rank to all nodes, and of the rank that gets most from those of its place.
  double sent = 0, received = 0;
  // Inside a node: of the rank that passes on most pairs, each counted once, however many shards get it.
  double passed_on = 0;
};

// Experts lie on `nodes` nodes in equal parts and in their order, and tensor-parallel ranks send slices of their batch.
NodeRows BusiestNodeRows(const Workload& workload, int nodes);

}  // namespace moeplan
