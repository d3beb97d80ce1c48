// When an all-to-all algorithm is something else than DIRECT, and what it takes.
//
// HIER_1D (HetuMoE, as ScheMoE §5 cites it) gathers at a leader of each node, leaders exchange, leaders scatter.
// HIER_2D (Tutel, DeepSpeed-MoE) exchanges inside nodes, then between ranks of the same place in their nodes. PIPE
// (ScheMoE §5) sends inside nodes and between nodes at the same time, on two streams. Pure functions.
#pragma once

#include "models/cost/profile.h"
#include "models/status.h"
#include "models/workload/groups.h"

namespace moeplan {

// All but DIRECT.
inline constexpr AllToAllAlgorithm kIndirectAlgorithms[] = {AllToAllAlgorithm::kHier1d, AllToAllAlgorithm::kHier2d,
                                                            AllToAllAlgorithm::kPipe};

// kInfeasible where an algorithm coincides with DIRECT: all but DIRECT need several nodes with several ranks on each.
Status AlgorithmAllowed(AllToAllAlgorithm algorithm, const GroupShape& group);

// How many blocks (what one rank has for one other) rank `rank` of the group holds for others on their way. With blocks
// of different sizes, at most this many times the largest. The first rank of each node leads.
int ScratchBlocks(AllToAllAlgorithm algorithm, const GroupShape& group, int rank);

}  // namespace moeplan
