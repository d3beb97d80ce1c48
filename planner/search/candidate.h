// A candidate of the search: knobs, the graph they stand for, and what it costs under one profile.
#pragma once

#include "models/plan/plan.h"
#include "models/schedule/task_graph.h"
#include "models/timeline/price.h"
#include "models/timeline/timeline.h"

namespace moeplan {

struct Candidate {
  Knobs knobs;
  TaskGraph graph;
  GraphPrices prices;
  PlayedGraph played;  // Of the mid times.
  double low_s = 0;    // Ends of the graph when every task takes the low, or the high, end of its interval; never on
  double high_s = 0;   // the wrong side of the mid.
  double memory_bytes = 0;
  bool relaunched = false;  // The graph is launched in another order than its schedule was written in.

  double time_s() const { return played.total_s; }
};

// Plays a graph whose prices miss nothing.
Candidate MakeCandidate(const Knobs& knobs, TaskGraph graph, GraphPrices prices, double memory_bytes);

// Everything an answer says of the candidate.
Plan PlanOf(const Candidate& candidate);

// "MONTA_O2 with 4 chunks", "PARM_S2 with the overlapped gather", "PARM_S1 with HIER_2D".
std::string Describe(const Knobs& knobs);

}  // namespace moeplan
