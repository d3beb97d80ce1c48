// The backends that a program asks for by name. Those of CUDA and of simulated clusters are libraries, loaded when they
// are first asked for, so that a program starts fast and where their libraries are not (decisions/0013):
// libmoeplan_cuda.so and libmoeplan_sim.so in $MOEPLAN_LIBRARY_DIR, else in ../lib/moeplan seen from the program, which
// must export its symbols.
//
// kUnavailable, saying where it was looked for and what to do, without them. Any thread.
#pragma once

#include <string>

#include "executor/rank_backend.h"
#include "executor/sim/launch_simulated.h"

namespace moeplan::executor {

// "host" and "cuda", for processes that are ranks; kInvalidInput for another name.
StatusOr<const RankBackend*> FindBackend(const std::string& name);

// LaunchSimulated.
StatusOr<Simulator*> FindSimulator();

}  // namespace moeplan::executor
