// How many rows the busiest rank has of a batch, or of one part of it that is cut along its samples.
//
// The whole batch sends every slot, filled or not: f·k·T of a rank's T tokens, f the capacity factor. A part sends the
// rows that it has, which differ from rank to rank, and an exchange or the experts behind it are done when the busiest
// rank's are. Capacity is that of the whole batch and carried from part to part, so all parts together drop what the
// whole drops, and no part has more rows for an expert than the whole has slots.
//
// A router that favours no expert sends each of a part's n = k·T/parts pairs of a rank to any of the E experts, k
// different ones a token. What R equal groups of experts get of as many ranks is about normal with mean n and variance
// n·(1 − 1/R)·(E − k)/(E − 1), and adds up to R·n. The busiest of them expects
//     n + m(R)·sqrt(n·(E − k)/(E − 1)),
// m(R) the expected largest of R independent standard normal values. Of N_ESP ranks that share experts each sends to
// all of these, so n is as many times larger. Capacity keeps min(load, slots) of each expert's load, in expectation. A
// dropless layer has no slots to fill: its whole batch, too, is done when the busiest rank's rows are. Pure.
#pragma once

#include "models/workload/workload.h"

namespace moeplan {

class PartRows {
 public:
  // The tokens of a rank are those that its own gate sees: B·L/N_MP. Requires at least one of each count, no more
  // choices than experts, and as many experts as fill the N_EP groups.
  explicit PartRows(const Workload& workload);

  // The busiest rank's rows over a rank's mean, from 1 to where all of a part's tokens choose one rank.
  double BusiestRatio(int parts) const;

  // The busiest rank's rows of a part, after drops, over a rank's slots of the whole batch; of a dropless layer over
  // the busiest rank's rows of that. At most 1, and 1 of one part.
  double ShareOfWhole(int parts) const;

 private:
  double pairs_ = 0;         // That a group of experts gets of the whole batch.
  double spread_ = 0;        // m(R)·sqrt((E − k)/(E − 1)).
  double most_ratio_ = 1;    // No rank has more.
  double filled_share_ = 1;  // Of the whole batch: a rank's mean rows over its slots, or the busiest rank's rows.
};

// The expected largest of so many independent standard normal values; 0 of one. Requires at least one.
double ExpectedLargestNormal(double values);

}  // namespace moeplan
