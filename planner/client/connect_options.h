// How a planner is reached and who asks.
#pragma once

#include <string>

namespace moeplan {

struct ConnectOptions {
  std::string address;    // "HOST:PORT".
  double deadline_s = 5;  // Of connecting, and then of each call. Finite, above 0.
};

}  // namespace moeplan
