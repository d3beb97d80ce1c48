#include "models/routing/token_copies.h"

#include <algorithm>

#include "models/check.h"

namespace moeplan {
namespace {

// The chance that none of `drawn` different ones of `all` is among these.
double ChanceOfNone(int drawn, int these, int all) {
  double chance = 1;
  for (int i = 0; i < drawn; ++i) chance *= std::max(0.0, 1.0 * (all - these - i) / (all - i));
  return chance;
}

// The chance of `hits` special ones among `drawn` of `all`, of which `special` are.
double Hypergeometric(int hits, int drawn, int special, int all) {
  double chance = 1;
  // Each way to order hits and misses is as likely.
  for (int i = 0; i < hits; ++i) chance *= 1.0 * (special - i) / (all - i) * (drawn - i) / (i + 1);
  for (int i = 0; i < drawn - hits; ++i) chance *= 1.0 * (all - special - i) / (all - hits - i);
  return chance;
}

}  // namespace

EvenRouting EvenRoutingOf(const Layer& layer) {
  return {.experts = layer.experts,
          .top_k = layer.top_k,
          .groups = layer.router.expert_groups,
          .groups_per_token = layer.router.groups_per_token};
}

double ExpectedPlaces(const EvenRouting& routing, int places) {
  const auto& [experts, top_k, groups, groups_per_token] = routing;
  MOEPLAN_CHECK(places >= 1 && experts % places == 0 && groups >= 1 && experts % groups == 0);
  const int of_place = experts / places;
  const bool nest = places % groups == 0 || groups % places == 0;
  if (groups == groups_per_token || !nest) return places * (1 - ChanceOfNone(top_k, of_place, experts));
  const int of_group = experts / groups, chosen = groups_per_token * of_group;
  MOEPLAN_CHECK(groups_per_token >= 1 && groups_per_token < groups && top_k <= chosen);
  // `hits` of the groups that the place has a part of are among the token's.
  const int spanned = std::max(1, groups / places), most = std::min(spanned, groups_per_token);
  double missed = 0;
  for (int hits = std::max(0, groups_per_token - (groups - spanned)); hits <= most; ++hits) {
    const int candidates = hits * std::min(of_group, of_place);
    missed += Hypergeometric(hits, groups_per_token, spanned, groups) * ChanceOfNone(top_k, candidates, chosen);
  }
  return places * (1 - missed);
}

}  // namespace moeplan
