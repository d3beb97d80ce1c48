// Device memory that one rank needs to run a graph.
#pragma once

#include "models/schedule/task_graph.h"

namespace moeplan {

// The weights of the E/N_EP experts that a rank holds, each cut to H/N_ESP, in the layer's element size. Weights only:
// no biases, gradients or optimizer state.
double ExpertWeightBytes(const Layer& layer, const Layout& layout);

// Every buffer of the graph, none shared, and the expert weights.
double MemoryBytes(const TaskGraph& graph);

}  // namespace moeplan
