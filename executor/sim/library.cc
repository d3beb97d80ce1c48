// What executor/backends.cc finds in the library of simulated clusters.
#include "executor/sim/launch_simulated.h"

extern "C" {
extern const char* const moeplan_library_version;
const char* const moeplan_library_version = MOEPLAN_VERSION;
moeplan::Simulator* moeplan_simulator();
}
moeplan::Simulator* moeplan_simulator() { return &moeplan::LaunchSimulated; }
