// profile_name and profile_version of a request as the store takes them. Pure.
#pragma once

#include "db/store.h"

namespace moeplan::service {

template <typename Request>
ProfileSelection SelectionOf(const Request& request) {
  ProfileSelection selection;
  if (!request.profile_name().empty()) selection.name = request.profile_name();
  if (request.has_profile_version()) selection.version = request.profile_version();
  return selection;
}

}  // namespace moeplan::service
