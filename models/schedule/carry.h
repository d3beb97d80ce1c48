// How the exchanges of a schedule are carried: the knobs that change sizes and algorithms of its tasks, but no task.
//
// Graphs of knobs that differ in these alone are one graph to draw, which then becomes each of them. Pure.
#pragma once

#include "models/schedule/knobs.h"
#include "models/schedule/task_graph.h"

namespace moeplan {

// Whether Carry turns the graph of one into that of the other: they differ in the all-to-all algorithm, the limit on
// CTAs, and, of a built-in family, which codecs encode there and back, but not in whether one does.
bool DifferInCarriageAlone(const Knobs& a, const Knobs& b);

// Turns the graph of such knobs into that of `knobs`, which the workload allows.
void Carry(const Knobs& knobs, TaskGraph& graph);

// All-to-alls of rows go by `algorithm`; those of counts are too small for any but DIRECT, and SAA is DIRECT, too. All
// collectives are limited to `ctas` CTAs; 0: the library's own choice.
void ExchangeBy(AllToAllAlgorithm algorithm, int ctas, TaskGraph& graph);

}  // namespace moeplan
