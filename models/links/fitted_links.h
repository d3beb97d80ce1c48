// The links of a cluster as its measured collectives tell of them: the line that LinkModel predicts with, by class.
#pragma once

#include <optional>
#include <vector>

#include "models/cost/profile.h"
#include "models/links/link_fit.h"

namespace moeplan {

struct FittedLink {
  LinkClass link = LinkClass::kIntraNode;
  // The time that one message over it takes before its first byte: a start and a step. The two are no figures of the
  // link by themselves, as a fit cannot tell them apart where all groups have one size.
  double alpha_s = 0;
  // One rank moves so much over it each way, never more than the wire where the profile's cluster knows that; absent:
  // no byte costs anything that could be told.
  std::optional<double> bytes_per_s;
  std::vector<CollectiveKey> crossed_by;  // Those that were measured, uncontended; by rising key of the group.

  friend bool operator==(const FittedLink&, const FittedLink&) = default;
};

struct FittedLinks {
  std::vector<FittedLink> links;  // Inside a node first; those that something was measured over.
  // Median of |line / measured - 1| over all points of all curves; absent where there are none.
  std::optional<double> relative_error_p50;
};

// The line through all collectives of the profile; absent where it has none. Entries without contention alone count, as
// for LinkModel; nothing is held out, so this takes milliseconds. Pure.
std::optional<LinkLine> LineOf(const Profile& profile);

// The same line by class of link, with how far it misses. Pure.
FittedLinks FitLinks(const Profile& profile);

}  // namespace moeplan
