// What a router that favours some experts gives them to do: shares, filled slots, dropped pairs, and the rows that
// slices exchange.
//
// All are expected counts of one source batch, taken real: routing says how many pairs each expert gets on average, and
// every batch and slice is taken to be like the average, but for WithExpectedSlots and part_rows.h. Slots are those of
// design.md §5: T for each expert and source batch; pairs beyond them are dropped. A token goes to an expert once, so
// no expert gets more than B·L pairs, whatever share it was said to have. Requires resolved workloads; pure.
#pragma once

#include <span>
#include <vector>

#include "models/workload/workload.h"

namespace moeplan {

// By expert, adding up to 1; 1/E each where the workload has no routing.
std::vector<double> ExpertShares(const Workload& workload);

// Whether every expert has the same share.
bool IsEven(const Workload& workload);

// By expert, before drops: k·B·L·share.
std::vector<double> ExpertPairs(const Workload& workload);

// How many slots an expert may fill for one source batch: T, or B·L where the layer is dropless.
double SlotsOfExpert(const Workload& workload);

// The least capacity factor that drops nothing: E times the largest share, which is at most 1/k. 1 where routing is
// even.
double FactorThatDropsNothing(const Workload& workload);

// Gives a resolved workload as it is priced: a dropless layer has as many slots as moeplan's executor is expected to
// give every expert, those of the expert that most pairs of any source batch choose, and no more than receive_factor
// allows. Tokens choose independently, so that some expert of some batch has more than its mean: of expert e,
// n = k·B·L·share(e), with a variance of n·(1 − n/(B·L)), taken for normal, which is too little where n is a few. Any
// other layer is as it was.
Workload WithExpectedSlots(Workload workload);

// How many slots the executor of a dropless layer gives experts of which the busiest needs so many: a sixteenth more at
// most, so that few different numbers come up. Requires at least 1.
int RoundedSlots(int needed);

// By expert, after drops: min(T, B·L, pairs).
std::vector<double> FilledSlots(const Workload& workload);

// The share of the pairs that get no slot. 0 to 1.
double DroppedShare(const Workload& workload);

// The busiest of `loads` over their mean; 1 where there is nothing to do.
double BusiestRatio(std::span<const double> loads);

// Of each EP rank, what the experts have that it holds: the first E/N_EP rank 0, and so on. Requires N_EP to divide
// their number.
std::vector<double> RankLoads(std::span<const double> expert_loads, int expert_parallel);

// Exact S1: the N_MP slices of a source batch take slots in their order, so an expert that overflows fills up with the
// first slices' pairs.
struct SliceRows {
  double sent = 0;      // Of the rank that sends most, each row counted once, however many shards get it.
  double received = 0;  // Of the rank that receives most, from all ranks of its EP&ESP group.
};
SliceRows BusiestSliceRows(const Workload& workload);

}  // namespace moeplan
