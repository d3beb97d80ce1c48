// Slowdowns of groups below leaves are compared with what is reckoned by hand.
#include "models/hardware/network.h"

#include <gtest/gtest.h>

#include <limits>

namespace moeplan {
namespace {

constexpr int kDomains = 16;

Network Leaves(int nodes_per_leaf, double oversubscription) {
  return {.nodes_per_leaf = nodes_per_leaf, .oversubscription = oversubscription};
}

TEST(NetworkTest, BelowOneLeafNothingIsSlower) {
  for (const Network& network : {Network(), Leaves(0, 4), Leaves(16, 4), Leaves(32, 4)}) {
    EXPECT_EQ(AllToAllSlowdown(network, kDomains, {.domains = 16}), 1);
    EXPECT_EQ(RingSlowdown(network, kDomains, {.domains = 16}), 1);
  }
  EXPECT_EQ(AllToAllSlowdown(Leaves(4, 8), kDomains, {.domains = 1}), 1);
  EXPECT_EQ(AllToAllSlowdown(Leaves(4, 8), kDomains, {.domains = 4}), 1);
  EXPECT_EQ(RingSlowdown(Leaves(4, 8), kDomains, {.domains = 4}), 1);
  // Domains 0 and 2, 1 and 3.
  EXPECT_EQ(RingSlowdown(Leaves(4, 8), kDomains, {.domains = 2, .apart = 2}), 1);
}

TEST(NetworkTest, AnAllToAllSendsOtherLeavesTheirShareOverTheUplinks) {
  // 8 domains below two leaves of 4: each sends 4 of the 7 others' shares up, at a quarter of the rate.
  EXPECT_DOUBLE_EQ(AllToAllSlowdown(Leaves(4, 4), kDomains, {.domains = 8}), 4.0 / 7 * 4);
  // Each of 16 domains sends 12 of the 15 others' shares up.
  EXPECT_DOUBLE_EQ(AllToAllSlowdown(Leaves(4, 4), kDomains, {.domains = 16}), 12.0 / 15 * 4);
  // Each domain is below a leaf of its own.
  EXPECT_DOUBLE_EQ(AllToAllSlowdown(Leaves(1, 4), kDomains, {.domains = 8}), 4);
  EXPECT_DOUBLE_EQ(AllToAllSlowdown(Leaves(4, 4), kDomains, {.domains = 4, .apart = 4}), 4);
  // Uplinks as fast as the cards slow nothing.
  EXPECT_EQ(AllToAllSlowdown(Leaves(4, 1), kDomains, {.domains = 8}), 1);
}

// Pairs of domains and leaves of three: domains 2 and 3 are a pair, below different leaves.
TEST(NetworkTest, GroupsThatLieAcrossTheEdgeOfALeafHaveItsUplinksForThemselves) {
  EXPECT_EQ(AllToAllSlowdown(Leaves(3, 2), kDomains, {.domains = 2}), 1);
  EXPECT_DOUBLE_EQ(AllToAllSlowdown(Leaves(3, 4), kDomains, {.domains = 2}), 4.0 / 3);
  EXPECT_DOUBLE_EQ(RingSlowdown(Leaves(3, 4), kDomains, {.domains = 2}), 4.0 / 3);
}

TEST(NetworkTest, ARingOfNeighboursLeavesALeafOnce) {
  // One domain of 4 sends on to the next leaf.
  EXPECT_EQ(RingSlowdown(Leaves(4, 4), kDomains, {.domains = 8}), 1);
  EXPECT_DOUBLE_EQ(RingSlowdown(Leaves(4, 12), kDomains, {.domains = 8}), 12.0 / 4);
  // Domains that are 4 apart all do.
  EXPECT_DOUBLE_EQ(RingSlowdown(Leaves(4, 4), kDomains, {.domains = 4, .apart = 4}), 4);
  // Domains 0, 2, 4, 6: of the two rings through a leaf of 4, each leaves it once.
  EXPECT_DOUBLE_EQ(RingSlowdown(Leaves(4, 4), kDomains, {.domains = 4, .apart = 2}), 2.0 / 4 * 4);
}

// Stages of two domains: 0 and 1 send to 2 and 3, below the same leaf, and these to 4 and 5, below the next.
TEST(NetworkTest, StagesOfAPipelineAlsoSendAcrossTheEdgeOfALeaf) {
  EXPECT_DOUBLE_EQ(AllToAllSlowdown(Leaves(4, 4), kDomains, {.domains = 2, .apart = 2}), 2.0 / 4 * 4);
}

// The last of two leaves has 2 of its 6 domains: it sends as much up as the first, over as many uplinks.
TEST(NetworkTest, ALeafThatIsNotFullHasAllItsUplinks) {
  // 6 domains send 2 of 7 shares, 2 send 6 of 7: 12 each way, and 6 · 7 at a leaf's full rate.
  EXPECT_DOUBLE_EQ(AllToAllSlowdown(Leaves(6, 7), /*cluster_domains=*/8, {.domains = 8}), 12.0 / 42 * 7);
}

TEST(NetworkTest, MoreOversubscriptionIsNeverFaster) {
  for (const int below : {1, 2, 3, 4, 8, 16}) {
    for (const DomainSpan& group : {DomainSpan{2, 1}, DomainSpan{4, 1}, DomainSpan{16, 1}, DomainSpan{4, 4}}) {
      double all_to_all = 1, ring = 1;
      for (const double oversubscription : {1.0, 1.5, 2.0, 4.0, 8.0}) {
        const Network network = Leaves(below, oversubscription);
        const double now = AllToAllSlowdown(network, kDomains, group),
                     ring_now = RingSlowdown(network, kDomains, group);
        EXPECT_GE(now, all_to_all);
        EXPECT_GE(ring_now, ring);
        EXPECT_LE(now, oversubscription);
        EXPECT_LE(ring_now, oversubscription);
        all_to_all = now, ring = ring_now;
      }
    }
  }
}

TEST(NetworkTest, WhatIsOutOfRangeIsNamed) {
  const auto error = [](const Network& network, const char* path = "") {
    return std::string(ValidateNetwork(network, path).message());
  };
  EXPECT_EQ(error({}), "");
  EXPECT_EQ(error({.nodes_per_leaf = 8, .oversubscription = 2, .rails = true, .bytes_per_s = 25e9}), "");
  EXPECT_EQ(error({.nodes_per_leaf = -1}, "network"),
            "network.nodesPerLeaf: found -1, expected a whole number of at least 1, or 0 for all");
  EXPECT_EQ(error({.oversubscription = 0.5}), "oversubscription: found 0.5, expected a number from 1 to 1e+06");
  EXPECT_EQ(error({.oversubscription = std::numeric_limits<double>::quiet_NaN()}),
            "oversubscription: found nan, expected a number from 1 to 1e+06");
  EXPECT_EQ(error({.bytes_per_s = 0}), "bytesPerS: found 0, expected a number from 1 to 1e+21");
}

}  // namespace
}  // namespace moeplan
