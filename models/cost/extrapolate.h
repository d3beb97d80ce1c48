// What stands in for a cost that nobody measured, until a model of the links themselves can say it.
//
// Pure; nothing here is used where a profile has the entry itself.
#pragma once

#include <optional>

#include "models/cost/profile.h"

namespace moeplan {

struct StandIn {
  CollectiveModel model;  // Under the key that was asked for.
  CollectiveKey source;   // The measured one it is made from.
};

// The model of the nearest measured group, its times × φ(asked) / φ(measured): the same bytes cross each rank's link in
// the same time. Measured groups count that reach as far: of one node for a group of one node, of several for one of
// several, since a link between nodes says nothing of one inside. Nearest is the same collective first, then the least
// difference of log ranksPerNode, then of log groupSize; the collective next to it counts by its own φ. DIRECT and
// uncontended alone. Absent: no such group was measured, or the key is one of kAllToAllAllGather.
std::optional<StandIn> ExtrapolateGroup(const Profile& profile, const CollectiveKey& key);

// The EXPERT_GEMM entry whose dimensions are nearest to the key's (sum of the differences of their logs, element size
// before that), for products of other dimensions; null where the profile has none.
const KernelModel* NearestGemm(const Profile& profile, const KernelKey& key);

}  // namespace moeplan
