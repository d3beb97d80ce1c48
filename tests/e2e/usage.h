// What a running process has used, as Linux counts it.
#pragma once

#include <sys/types.h>

namespace moeplan::testing {

// The most memory that the process has held at once, in bytes.
double PeakMemoryBytes(pid_t pid);
// The time that its threads ran on processors.
double ProcessorTimeS(pid_t pid);

}  // namespace moeplan::testing
