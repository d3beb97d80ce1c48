// What whoever starts a server may say of how it watches for drift.
#pragma once

#include <chrono>
#include <functional>

namespace moeplan::service {

struct DriftOptions {
  // Reports that follow one another faster share a slow moment of the machine: of those that speak of one cost the test
  // counts one in so many seconds. At least 0.
  double between_reports_s = 5;
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

}  // namespace moeplan::service
