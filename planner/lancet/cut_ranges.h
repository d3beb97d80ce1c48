// Which ranges of the forward pass are cut, and in how many parts (Lancet §5.1), with what that does to the backward
// pass where it is cut along with them (planner/lancet/way_back.h).
//
// T(n), the end of the first n instructions, is the smallest T(i) + P(i, n, k) over i and k, with P from the timeline
// of the range (planner/lancet/timeline.h) where its axes allow it, and what its way back takes longer; k = 1 leaves a
// range as it is. Where ranges wait
// for each other, as in a chain, the sum of a choice is the end of its timeline; else its timeline ends no later, and
// another choice may end earlier still. Neighbours are merged to groups of group_s, but for a gate that looks at the
// whole batch, which is a group by itself, and a layer that is cut as a whole is within one group; ranges are groups, of
// at most max_range_s. Pure functions.
#pragma once

#include <stop_token>
#include <vector>

#include "planner/lancet/timed_graph.h"
#include "planner/lancet/timeline.h"

namespace moeplan::planner {

// A cut of some groups, not necessarily a good one.
using Cuts = std::vector<CutRange>;

struct CutSearchOutcome {
  Cuts ranges;             // In the given order.
  bool all_ranges = true;  // False: the budget was spent before the longest ranges were tried.
  double launches = 0;     // Played; a bound on a range counts as one.
};

// Ties: fewer parts, then the shorter range. `budget_launches` is shared out evenly over where ranges start.
CutSearchOutcome ChooseRanges(const TimedGraph& graph, double budget_launches, std::stop_token cancelled = {});

// The borders of groups: every run of consecutive forward instructions as the places where its groups start, and where
// the last one ends.
std::vector<std::vector<int>> GroupBorders(const TimedGraph& graph);

// P(i, n, k): a range alone, from its start to its last end. Without its way back.
double RangeS(const TimedGraph& graph, int first, int last, int parts);

// Every legal range with its time for each k from 2 on, by first, last and k; nothing where there are more than `most`,
// and when cancelled. A range whose way back cannot be cut is not legal.
std::vector<CutRange> AllRanges(const TimedGraph& graph, size_t most, const std::stop_token& cancelled = {});

}  // namespace moeplan::planner
