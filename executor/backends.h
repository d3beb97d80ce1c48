// The backends by name.
#pragma once

#include <string>
#include <vector>

#include "executor/rank_backend.h"

namespace moeplan {

// "host" and "cuda"; kInvalidInput for another name. The cuda backend is a library that is loaded when it is first
// asked for, so that a program needs no CUDA to start: libmoeplan_cuda.so in $MOEPLAN_LIBRARY_DIR, else in
// ../lib/moeplan seen from the program. kUnavailable, saying where it was looked for, without it. The program must
// export its symbols. Any thread.
StatusOr<const RankBackend*> FindBackend(const std::string& name);

}  // namespace moeplan
