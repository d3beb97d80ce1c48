// What executor/backends.cc finds in the library of simulated clusters.
#include "executor/sim/launch_simulated.h"

extern "C" {
extern const char* const moeplan_library_version;
const char* const moeplan_library_version = MOEPLAN_VERSION;
moeplan::executor::Simulator* moeplan_simulator();
}
moeplan::executor::Simulator* moeplan_simulator() { return &moeplan::executor::LaunchSimulated; }
