// What a collective asks of the links: how many messages one after the other, and how many bytes, for each class of
// link.
//
// Two classes: links between the GPUs of a node, and the NIC. A group of n ranks lies on N = n / m nodes with m ranks
// on each, and all sibling groups run at once, as in training and as they are measured, so every GPU of a node is busy.
// Counted is the busiest rank. Whether a NIC serves one GPU or the whole node only changes what a byte of it costs, by
// the same factor for all groups in which the ranks of a node have equal parts.
//
//                                      NIC                           inside the node
//                                steps    bytes / size            steps        bytes / size
//   ALL_TO_ALL, DIRECT           n - m    (n - m) / n             m - 1        (m - 1) / n
//   gather along kDirect         n - m    (n - m) / n             m - 1        (m - 1) / n
//          along kRing           N        (n - 1) / n             n - 1 - N    (n - 1) / n
//          along kHierarchical   N - 1    (N - 1) / N / m         m - 1        (m - 1) / m
//   ALL_TO_ALL, others           what the messages of their phases say (models/all_to_all), phase after phase
//
// A gather is an ALL_GATHER or its mirror image, a REDUCE_SCATTER; an ALL_REDUCE is both, in one start and one pass of
// the memory. A chunk of a ring passes n - 1 links one after the other, of which the slowest chunk's N lie between
// nodes (none where N = 1, all where m = 1; a class without a link carries nothing). kHierarchical is one such ring for
// each place in a node, each with a NIC of its own, and one inside. Source: Patarasuk and Yuan, "Bandwidth optimal
// all-reduce algorithms for clusters of workstations" (2009). Pure.
#pragma once

#include <array>
#include <optional>

#include "models/cost/operation.h"
#include "models/workload/groups.h"


namespace moeplan {

enum class LinkClass { kIntraNode, kInterNode };
inline constexpr size_t kLinkClasses = 2;

// The way of gathers over several nodes. No profile says which one a library takes.
enum class GatherRoute { kDirect, kRing, kHierarchical };
inline constexpr GatherRoute kGatherRoutes[] = {GatherRoute::kDirect, GatherRoute::kRing, GatherRoute::kHierarchical};

struct LinkLoad {
  double starts = 0;                             // Phases: each is started by software.
  std::array<double, kLinkClasses> steps = {};   // By LinkClass: messages one after the other.
  std::array<double, kLinkClasses> shares = {};  // Likewise: bytes over the size that nccl-tests would print.
  double local_share = 0;                        // Bytes that pass the memory of the rank itself, likewise.

  friend bool operator==(const LinkLoad&, const LinkLoad&) = default;
};

// All 0 for a group of one rank. Absent where nothing can be counted: kAllToAllAllGather, and other algorithms than
// DIRECT on a group that they do not serve or whose nodes hold more than kMostListedBlocks blocks (ranks times ranks on
// a node).
inline constexpr double kMostListedBlocks = 65536;
std::optional<LinkLoad> LoadOf(const CollectiveKey& key, GatherRoute route);

// Whether it crosses the NIC.
inline bool Spans(const GroupShape& group) { return group.ranks_per_node < group.size; }

}  // namespace moeplan
