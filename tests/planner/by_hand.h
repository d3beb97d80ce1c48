// Pieces of the profiles and workloads that planner tests write down by hand.
#pragma once

#include <gtest/gtest.h>

#include "models/cost/profile.h"
#include "models/workload/workload.h"

namespace moeplan {

inline Workload Resolved(const Workload& workload, const Cluster& cluster) {
  const auto resolved = ResolveWorkload(workload, cluster);
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  return *resolved;
}

inline CollectiveKey Over(Collective collective, GroupShape group, Contention contention = Contention::kNone) {
  return {.collective = collective, .group = group, .contention = contention};
}

// The all-to-all of S2 with its gather in one.
inline CollectiveKey OverlappedGather(GroupShape group, int gather_group_size, int shards) {
  CollectiveKey key = Over(Collective::kAllToAllAllGather, group);
  key.gather_group_size = gather_group_size;
  key.shards = shards;
  return key;
}

inline CollectiveModel Line(const CollectiveKey& key, double alpha_s, double beta_s_per_byte) {
  return {key, MakeCostModel(AlphaBeta{alpha_s, beta_s_per_byte})};
}
inline KernelModel Line(Kernel kernel, double alpha_s, double beta_s_per_unit) {
  return {{.kernel = kernel}, MakeCostModel(AlphaBeta{alpha_s, beta_s_per_unit})};
}

// `expected` came with the contract, so it holds to the last digits of its text.
inline void ExpectAsPrinted(double found, double expected) { EXPECT_NEAR(found, expected, 1e-9 * expected); }

}  // namespace moeplan
