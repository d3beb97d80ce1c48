// page_size and page_token of a request as the store takes them. Pure.
#pragma once

#include "db/store.h"

namespace moeplan::service {

template <typename Request>
PageRequest PageOf(const Request& request) {
  PageRequest page = {.token = request.page_token()};
  if (request.page_size() != 0) page.size = request.page_size();
  return page;
}

}  // namespace moeplan::service
