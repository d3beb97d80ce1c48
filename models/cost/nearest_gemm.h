// What stands in for a matrix product that nobody measured.
#pragma once

#include "models/cost/profile.h"

namespace moeplan {

// The EXPERT_GEMM entry whose dimensions are nearest to the key's (sum of the differences of their logs, element size
// before that), for products of other dimensions; null where the profile has none. Pure.
const KernelModel* NearestGemm(const Profile& profile, const KernelKey& key);

// `key` with the element size and the dimensions of `other`.
KernelKey WithDimensionsOf(KernelKey key, const KernelKey& other);

}  // namespace moeplan
