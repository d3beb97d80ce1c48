// Device memory that one rank needs to run a graph.
#pragma once

#include "models/schedule/task_graph.h"

namespace moeplan {

// The weights and biases of the E/N_EP experts that a rank holds, each cut to H/N_ESP, and of the shared expert, cut
// over MP, in the layer's element size. No gradients or optimizer state. The last bias counts on every shard, as on the
// one that has it.
double ExpertWeightBytes(const Layer& layer, const Layout& layout);

// Every buffer of the graph, none shared, and the expert weights.
double MemoryBytes(const TaskGraph& graph);

}  // namespace moeplan
