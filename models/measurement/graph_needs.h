// Lists what has to be measured so that a training graph's costs are those of its own shapes and sizes. Pure.
#pragma once

#include <vector>

#include "models/measurement/needs.h"
#include "models/training/training_graph.h"

namespace moeplan {

// Every kernel of the graph's work and every collective at its size, and, of the forward pass, at those of 2, 4, 8 ...
// parts; the counts that go ahead of parts, and copies of what is put together; each collective beside products and
// beside those of other streams, and the largest product of experts beside them. Those on which most time hangs
// (NominalS) come first. Requires a validated graph.
std::vector<Need> NeedsOfGraph(const TrainingGraph& graph, const Cluster& cluster);

}  // namespace moeplan
