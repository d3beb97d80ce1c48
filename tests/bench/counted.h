// What a program has asked of the machine since it started, for tests and benchmarks of what a run costs.
//
// Linking counted.cc replaces operator new and wraps pthread_create. Under a sanitizer, which replaces them itself,
// nothing is counted. Any thread may read.
#pragma once

#include <cstdint>

namespace moeplan::bench {

bool Counts();
uint64_t Allocations();
uint64_t ThreadsMade();

}  // namespace moeplan::bench
