// The network between NVLink domains: cards, leaf switches that join some domains each, and a spine that joins the
// leaves. How much the uplinks of leaves slow what a group sends.
//
// Domains lie below leaves in rank order, and a job has the first leaves whole, as a scheduler that packs jobs places
// it. Traffic spreads evenly over the uplinks of a leaf. With rails, bytes for another card's rail go to the GPU of
// that card over the inside links first (NCCL's PXN), so that no leaf sees traffic between rails. As all cards of a
// domain send alike in training, a rail's leaf is as busy as one that joins whole domains, for the same number of
// domains. Values only; pure.
#pragma once

#include <optional>
#include <string_view>

#include "models/status.h"

namespace moeplan {

struct Network {
  int nodes_per_leaf = 0;       // NVLink domains that one leaf joins; 0: all.
  double oversubscription = 1;  // What the cards below a leaf can send, over what its uplinks carry; the same down.
  bool rails = false;           // Leaf i joins card i of its domains, rather than all cards of them.
  std::optional<double> bytes_per_s;  // One direction of one GPU's card; absent: the hardware's figure.

  friend bool operator==(const Network&, const Network&) = default;
};

// kInvalidInput, naming the field within `path`, which may be empty: a value is out of its range (moeplan.v1.Network).
Status ValidateNetwork(const Network& network, std::string_view path);

// Whether some group may be slower than below one leaf: there are several leaves, and they are oversubscribed.
bool HasSlowUplinks(const Network& network, int cluster_domains);

// The domains that a group reaches into: so many, so many apart. Its siblings are such groups side by side, over all
// domains of the cluster.
struct DomainSpan {
  int domains = 1, apart = 1;
};

// How many times as long the uplinks of the busiest leaf take, each way, as the cards below it take to send what leaves
// their domains, while all siblings run; 1 where they take less. An all-to-all sends each domain an equal share; one
// of two domains that do not follow one another is what stages of a pipeline send to the next. A ring (all-gather,
// reduce-scatter, all-reduce) goes from each domain to the next of the group, and from the last to the first. From 1 to
// the oversubscription.
double AllToAllSlowdown(const Network& network, int cluster_domains, const DomainSpan& group);
double RingSlowdown(const Network& network, int cluster_domains, const DomainSpan& group);

}  // namespace moeplan
