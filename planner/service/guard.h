// A bug or a lack of memory in one piece of work is no reason to end the others.
#pragma once

#include <exception>

#include "planner/service/errors.h"

namespace moeplan::service {

// What `work` answers, a Status or a StatusOr, or an error in place of what it throws.
template <typename Work>
auto Guard(Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception& problem) {
    return error::Unexpected(problem.what());
  }
}

}  // namespace moeplan::service
