// "What if" for cost models: everything faster or slower, or the network alone. Pure; factors are finite and above 0.
#pragma once

#include "models/cost/profile.h"

namespace moeplan::planner {

// Every time times `factor`, the latency too.
void ScaleTime(CostModel& model, double factor);

// What a link of `speed` times the rate makes of the model: the part of each time that grows with size is divided by
// `speed`, the latency stays. The latency is alpha of the alphaBeta summary; where there is none, of the line fitted to
// the curve's points (models/fit); nowhere more than the time itself. Between points the form of the curve stays.
void ScaleRate(CostModel& model, double speed, double bus_factor);

// A NIC of `speed` times the rate, for the collectives whose group has ranks on more than one node; others are inside a
// node and stay. All of a spanning collective's rate counts as the NIC's: what the links inside a node add beside it,
// and where they become the narrow place, no profile says. Large speeds are therefore optimistic.
// The rate of the network, where the cluster knows it, is multiplied, too.
void ScaleNic(Profile& profile, double speed);

}  // namespace moeplan::planner
