// How many threads one call may work with: others ask for plans meanwhile.
#pragma once

#include <thread>

namespace moeplan::service {

inline int PoliteThreads() { return std::thread::hardware_concurrency() > 2 ? 2 : 1; }

}  // namespace moeplan::service
