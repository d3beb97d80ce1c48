// Whether two profiles say the same, apart from version and time of storing. Pure.
#pragma once

#include "models/cost/profile.h"

namespace moeplan::service {

inline bool SameModels(const Profile& one, const Profile& other) {
  return one.name == other.name && one.cluster == other.cluster && one.collectives == other.collectives &&
         one.kernels == other.kernels;
}

}  // namespace moeplan::service
