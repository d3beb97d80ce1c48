// Batches whose tokens choose experts as a workload's routing says, for runs that are compared with what was predicted
// for that routing.
//
// Random weights route about evenly. Here a token's first E features are its logits, which the gate takes as they are:
// those of the experts that it is to choose lie between 1 and 2, all others between -2 and -1. Tokens are independent,
// and each chooses expert e with the probability that prices count with, k · share(e), but at most 1; what an expert's
// share has beyond 1/k goes to the others. (Madow, "On the theory of systematic sampling, II", 1949: every expert has
// an interval of that length on a line, and those are chosen in whose intervals u, u + 1 ... u + k - 1 lie.) Where a
// router limits a token to some groups, these are chosen in the same way first.
//
// Functions are pure.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "executor/layer/layer_weights.h"
#include "models/status.h"
#include "models/workload/workload.h"

namespace moeplan::executor {

// Whether the workload has a routing that its gate can follow: an uneven one, of a gate that chooses by scores.
bool FollowsRouting(const Workload& workload);

// The error where it has one, but tokens have fewer features than there are experts.
Status CheckRoutable(const Workload& workload);

// Makes the gate take a token's first E features as its logits. The router's biases become 0.
void TakeFeaturesAsLogits(const Layer& layer, LayerWeights& weights);

// Chooses `count` different ones of as many as there are weights, which are at least 0, each with a probability in
// proportion to its weight, but at most 1. Where fewer have weight, others fill up. Requires no more than there are.
std::vector<int> DrawInProportion(const std::vector<double>& weights, int count, std::mt19937_64& engine);

// Draws the experts of every token of source batch `batch`, and writes their logits to `input`, [B·L][M]. Requires a
// resolved workload that FollowsRouting and is routable.
void WriteLogits(const Workload& workload, int batch, uint64_t seed, std::vector<float>& input);

}  // namespace moeplan::executor
