// A candidate of the search: knobs, the graph they stand for, and what it costs under one profile.
#pragma once

#include "models/plan/plan.h"
#include "models/schedule/task_graph.h"
#include "models/timeline/price.h"
#include "models/timeline/timeline.h"
#include "planner/stop_signals.h"

namespace moeplan::planner {

struct Candidate {
  Knobs knobs;
  TaskGraph graph;
  GraphPrices prices;
  PlayedGraph played;  // Of the mid times.
  double low_s = 0;    // 90 % interval; both are the mid until AddInterval.
  double high_s = 0;
  // Half of what the interval would be wide without what machines differ by from one hour to another: other candidates
  // have that in common.
  double own_error_s = 0;
  double memory_bytes = 0;
  GradientExchange gradients;  // Whose slices are tasks of the graph.

  double time_s() const { return played.total_s; }
};

// Plays a graph whose prices miss nothing.
Candidate MakeCandidate(const Knobs& knobs, TaskGraph graph, GraphPrices prices, double memory_bytes);

// Works out the 90 % interval. Costs, and how contention slows each, are taken to err one from the other independently,
// but alike wherever the graph asks for them: the ends of the graph with one at a time at the low, or the high, end of
// its interval differ from the mid by what adds up in squares, with what machines differ by from one hour to another
// (docs/decisions/0010). Without any interval of a cost there is none. Stopped, it leaves out the costs that are left.
void AddInterval(Candidate& candidate, const StopSignals& stop = {});

// What measurements cannot tell from none, of a candidate with its interval (docs/decisions/0005). Where no interval is
// known, times are taken at their word.
double IndistinctGainS(const Candidate& candidate);

// Everything an answer says of the candidate.
Plan PlanOf(const Candidate& candidate);

// "MONTA_O2 with 4 chunks", "PARM_S2 with the overlapped gather", "PARM_S1 with HIER_2D with 8 CTAs".
std::string Describe(const Knobs& knobs);

}  // namespace moeplan::planner
