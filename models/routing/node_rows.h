// How many rows ranks exchange that send each token once to each node, and there its pairs to their experts.
//
// Expected counts; as models/routing/expert_load.h says, every batch and every slice of one is like the average, but
// that a dropless layer waits at least for the rank that chance gives the most (models/routing/part_rows.h). A router
// that favours some experts reaches a node as one that favours none would with so many draws more or fewer. Requires a
// resolved workload; pure.
#pragma once

#include "models/workload/workload.h"

namespace moeplan {

struct NodeRows {
  // Between nodes: what a rank sends to all nodes, and what the rank gets that gets most from those of its place.
  double sent = 0, received = 0;
  // Inside a node: the pairs that the busiest relay passes on, each counted once, however many shards get it, and those
  // that arrive where the busiest experts are.
  double passed_on = 0, arriving = 0;
};

// Experts lie on `nodes` nodes in equal parts and in their order, and tensor-parallel ranks send slices of their batch.
NodeRows BusiestNodeRows(const Workload& workload, int nodes);

}  // namespace moeplan
