// Device memory that one rank needs to run a graph.
#pragma once

#include "models/schedule/task_graph.h"

namespace moeplan {

// The weights and biases of the E/N_EP experts that a rank holds, each cut to H/N_ESP, and of the shared expert, cut
// over MP, in the layer's element size. No gradients or optimizer state. The last bias counts on every shard, as on the
// one that has it.
double ExpertWeightBytes(const Layer& layer, const Layout& layout);

// Parameters of the routed experts that a rank holds, their biases included.
double ExpertParameters(const Layer& layer, const Layout& layout);
// Of the gate's matrix, and of the own columns of the shared expert.
double DenseParameters(const Layer& layer, const Layout& layout);

// Every buffer of the graph, none shared, and the expert weights.
double MemoryBytes(const TaskGraph& graph);

// The same where `workload` leaves out zero_stage. Else what a training job has on one rank for this layer: the
// buffers; weights, gradients and optimizer states of experts, gate and shared expert (models/memory/weights.h); and,
// of a graph without backward tasks, what the experts keep for them (models/memory/activations.h). A graph with
// backward tasks holds that in its buffers, recomputation or not.
// Requires the resolved workload that the graph was built for.
double MemoryBytes(const TaskGraph& graph, const Workload& workload);

// Rows that experts compute for each token of a source batch: k·f, and a multiple where a schedule has several ranks
// compute the same one. With the real slots, so at least as many.
double ExpertCopies(const TaskGraph& graph);

}  // namespace moeplan
