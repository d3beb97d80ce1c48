// What executor/backends.cc finds in the library of simulated clusters.
#include "executor/sim/launch_simulated.h"

extern "C" moeplan::Simulator* moeplan_simulator();
moeplan::Simulator* moeplan_simulator() { return &moeplan::LaunchSimulated; }
