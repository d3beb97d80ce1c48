// How many copies of a token a dispatch sends.
//
// An all-to-all sends one for each of the token's k experts. A dispatcher that knows where these lie (DeepEP, HybridEP)
// sends one to each node that holds any of them, and there one to each such rank; fewer, since several of the experts
// may lie in one place. Expected counts for a router that chooses evenly; one that favours some experts needs no more.
#pragma once

#include "models/workload/workload.h"

namespace moeplan {

struct EvenRouting {
  int experts = 1;
  int top_k = 1;  // Different ones.
  // Routing limited to groups (DeepSeek-V3, arXiv 2412.19437 §2.1.2): experts lie in `groups` equal groups, and a
  // token's are those of `groups_per_token` groups alone. 1 of 1: it is not limited.
  int groups = 1, groups_per_token = 1;
};

EvenRouting EvenRoutingOf(const Layer& layer);

// In how many of `places` equal parts of the experts, in their order, a token has some expert. From 1 to the lesser of
// `places` and top_k. Requires `places` and `groups` to divide the experts and the chosen groups to have top_k of them.
// The limit on groups is left out where places and groups do not nest; the answer is then too high.
double ExpectedPlaces(const EvenRouting& routing, int places);

}  // namespace moeplan
